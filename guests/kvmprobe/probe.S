# Does this accelerator run what an operating system's kernel does first? Says "K" when every step worked, else the
# number of the last step that did, where it still can; a hang or an internal error of the VMM means no as well.
#
# It is said on COM1, then to isa-debug-exit (port 0xf4), which ends QEMU with status 2 * character + 1; where there is
# none, the guest switches off by Cloud Hypervisor's shutdown port (0x600).
#
# Some hosts offer a /dev/kvm that emulates kernel mode in software and lacks instructions that every kernel needs.

        .macro  finish                  # says the character in %bl, and does not return
        movb    %bl, %al
        movw    $0x3f8, %dx
        outb    %al, %dx
        movzbl  %bl, %eax
        outl    %eax, $0xf4
        movb    $0x34, %al
        movw    $0x600, %dx
        outb    %al, %dx
9:      hlt
        jmp     9b
        .endm

        .code32
        .section .note.Xen, "a", @note
        .long   4, 4, 18
        .asciz  "Xen"
        .long   entry

        .section .text, "ax"
        .globl  entry
entry:  cld
        movl    $stack_end, %esp
        lgdt    gdt_pointer
        ljmp    $0x08, $1f
1:      movl    $0x10, %eax
        movl    %eax, %ds
        movl    %eax, %es
        movl    %eax, %ss

# Step 1: an exception in protected mode, and IRET from it.
        movl    $handler32, %eax
        movw    %ax, idt32 + 3 * 8
        movw    $0x08, idt32 + 3 * 8 + 2
        movw    $0x8e00, idt32 + 3 * 8 + 4
        shrl    $16, %eax
        movw    %ax, idt32 + 3 * 8 + 6
        lidt    idt32_pointer
        int3
        cmpl    $1, caught
        movb    $'0', %bl
        jne     end32

# Step 2: long mode, with the first GiB mapped by 2 MiB pages.
        movl    $level3 + 3, level4
        movl    $level2 + 3, level3
        movl    $level2, %edi
        movl    $0x83, %eax
        movl    $512, %ecx
2:      movl    %eax, (%edi)
        addl    $0x200000, %eax
        addl    $8, %edi
        loop    2b
        movl    $level4, %eax
        movl    %eax, %cr3
        movl    %cr4, %eax
        orl     $0x620, %eax            # PAE, SSE and its exceptions
        movl    %eax, %cr4
        movl    $0xc0000080, %ecx
        rdmsr
        orl     $0x101, %eax            # long mode and SYSCALL
        wrmsr
        movl    %cr0, %eax
        andl    $~4, %eax
        orl     $0x80000002, %eax
        movl    %eax, %cr0
        ljmp    $0x18, $long

handler32:
        incl    caught
        iret

end32:  finish

        .code64
long:   movl    $0x10, %eax
        movl    %eax, %ds
        movl    %eax, %es
        movl    %eax, %ss
        movl    $stack_end, %esp

# Step 3: an exception in long mode, and IRETQ from it.
        leaq    handler64(%rip), %rax
        leaq    idt64 + 3 * 16(%rip), %rdi
        movw    %ax, (%rdi)
        movw    $0x18, 2(%rdi)
        movw    $0x8e00, 4(%rdi)
        shrq    $16, %rax
        movw    %ax, 6(%rdi)
        shrq    $16, %rax
        movl    %eax, 8(%rdi)
        lidt    idt64_pointer(%rip)
        int3
        movb    $'2', %bl
        cmpl    $2, caught(%rip)
        jne     end64

# Step 4: 16 bytes compared and exchanged under lock, as memory allocators do.
        xorl    %eax, %eax
        xorl    %edx, %edx
        movl    $1, %ecx
        movl    $1, %ebx
        lock cmpxchg16b area(%rip)
        cmpl    $1, area(%rip)
        movb    $'3', %bl
        jne     end64

# Step 5: a task register, a page that vanishes, GS switched, a far return.
        leaq    tss(%rip), %rax
        movw    %ax, gdt_tss + 2(%rip)
        shrq    $16, %rax
        movb    %al, gdt_tss + 4(%rip)
        movb    %ah, gdt_tss + 7(%rip)
        movl    $0x28, %eax
        ltr     %ax
        swapgs
        swapgs
        invlpg  0x400000
        movq    %cr3, %rax
        movq    %rax, %cr3
        pushq   $0x18
        leaq    3f(%rip), %rax
        pushq   %rax
        lretq

# Step 6: SSE state, and XSAVE where the processor has it.
3:      movl    $1, %eax
        cpuid
        movups  %xmm0, area(%rip)
        fxsave  area(%rip)
        fxrstor area(%rip)
        testl   $1 << 26, %ecx
        jz      4f
        movq    %cr4, %rax
        orl     $1 << 18, %eax
        movq    %rax, %cr4
        xorl    %ecx, %ecx
        xgetbv
        movl    $3, %eax
        xorl    %edx, %edx
        xsetbv
        xsave64 area(%rip)
        xrstor64 area(%rip)

# Step 7: string instructions over pages, a locked addition, flags by POPF.
4:      leaq    level2(%rip), %rsi
        leaq    area(%rip), %rdi
        movl    $64, %ecx
        rep movsq
        xorl    %eax, %eax
        lock xaddl %eax, caught(%rip)
        pushfq
        popfq
        rdtsc
        movb    $'K', %bl
end64:  finish

handler64:
        incl    caught(%rip)
        iretq

        .data
        .balign 16
gdt:    .quad   0
        .quad   0x00cf9b000000ffff      # 0x08: code, 32 bits
        .quad   0x00cf93000000ffff      # 0x10: data
        .quad   0x00af9b000000ffff      # 0x18: code, 64 bits
        .quad   0
gdt_tss:
        .quad   0x0000890000000067      # 0x28: task state
        .quad   0
gdt_pointer:
        .word   gdt_pointer - gdt - 1
        .long   gdt
idt32_pointer:
        .word   4 * 8 - 1
        .long   idt32
idt64_pointer:
        .word   4 * 16 - 1
        .quad   idt64
caught: .long   0

        .bss
        .balign 4096
level4: .skip   4096
level3: .skip   4096
level2: .skip   4096
area:   .skip   4096
idt32:  .skip   4 * 8
        .balign 16
idt64:  .skip   4 * 16
tss:    .skip   128
        .balign 16
        .skip   2048
stack_end:
