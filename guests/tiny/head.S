# Entry of the tiny guest: PVH (32-bit protected mode, flat segments, paging off, %ebx = hvm_start_info).
# https://xenbits.xen.org/docs/unstable/misc/pvh.html

        .code32

        .section .note.Xen, "a", @note
        .long   4, 4, 18                # name size, value size, XEN_ELFNOTE_PHYS32_ENTRY
        .asciz  "Xen"
        .long   entry

        .section .text.entry, "ax"
        .globl  entry
entry:  cld
        movl    $stack_end, %esp
        pushl   %ebx
        lgdt    gdt_pointer
        ljmp    $0x08, $flat
flat:   movw    $0x10, %ax
        movw    %ax, %ds
        movw    %ax, %es
        movw    %ax, %fs
        movw    %ax, %gs
        movw    %ax, %ss
        call    guest_main
halt:   cli
        hlt
        jmp     halt

# Interrupts are open only around the HLT of the main loop, so the saved EFLAGS need no restoring and a far
# return does the work of IRET. That matters: software emulators inside some KVM hosts lack IRET in protected mode.
        .macro  handler name, function
        .globl  \name
\name:  pushal
        call    \function
        popal
        lret    $4
        .endm

        handler timer_entry, on_timer
        handler serial_entry, on_serial
        handler acpi_entry, on_acpi

        .globl  spurious_entry
spurious_entry:
        lret    $4

        .globl  fault_entry
fault_entry:
        call    on_fault
        jmp     halt

        .data
        .balign 8
gdt:    .quad   0
        .quad   0x00cf9b000000ffff      # 0x08: code, 4 GiB
        .quad   0x00cf93000000ffff      # 0x10: data, 4 GiB
gdt_pointer:
        .word   gdt_pointer - gdt - 1
        .long   gdt

        .bss
        .balign 16
        .skip   8192
stack_end:
