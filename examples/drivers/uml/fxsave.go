package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Kernels before 6.13 have room for the registers of older CPUs alone: where the host has AMX, the kernel cannot give
// them back, and each process of the guest crashes. Without NT_X86_XSTATE they save what FXSAVE knows, which is enough
// for guests that leave the wider registers alone; this is how a guest's C library is told.
const withoutWideRegisters = "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-AVX512VL"

// narrowWord makes this program a launcher: it becomes the kernel that follows, kept from wide registers.
const narrowWord = "--narrow"

// narrow says whether the kernel must be kept from this CPU's wide registers, or why it cannot be used at all.
func narrow(program string) (bool, error) {
	version, err := exec.Command(program, "--version").Output()
	if err != nil {
		return false, fmt.Errorf("%w; apt-get install user-mode-linux", err)
	}
	var major, minor int
	fmt.Sscanf(string(version), "%d.%d", &major, &minor)
	cpu, _ := os.ReadFile("/proc/cpuinfo")
	return major*100+minor < 613 && bytes.Contains(cpu, []byte(" amx_tile")), nil
}

// executeNarrow becomes the program, with ptrace(PTRACE_GETREGSET, NT_X86_XSTATE) answering ENODEV from then on.
func executeNarrow(argv []string) error {
	const arch, number, request, address = 4, 0, 16, 32 // offsets in struct seccomp_data
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: skip, K: value}
	}
	answer := func(what uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: what} }
	filter := []unix.SockFilter{
		load(arch), unless(unix.AUDIT_ARCH_X86_64, 7), load(number), unless(unix.SYS_PTRACE, 5),
		load(request), unless(unix.PTRACE_GETREGSET, 3), load(address), unless(0x202, 1), // NT_X86_XSTATE
		answer(unix.SECCOMP_RET_ERRNO | uint32(unix.ENODEV)), answer(unix.SECCOMP_RET_ALLOW),
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return syscall.Exec(argv[0], argv, os.Environ())
}
