# Does KVM run here what an operating system's kernel does first? A PVH guest that writes "K" to COM1 when every step
# worked, else the number of the last good step, and switches off by Cloud Hypervisor's shutdown port (0x600).
#
# Some hosts offer a /dev/kvm that emulates kernel mode in software and lacks instructions that every kernel needs.
# gcc -c -m64 probe_guest.S && ld -m elf_x86_64 -Ttext 0x100000 --build-id=none ... (tests/unit/cloud_hypervisor)

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

# Step 2: long mode, with the first GiB mapped by pages of 2 MiB.
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
        orl     $0x100, %eax            # long mode
        wrmsr
        movl    %cr0, %eax
        andl    $~4, %eax
        orl     $0x80000002, %eax
        movl    %eax, %cr0
        ljmp    $0x18, $long

handler32:
        incl    caught
        iret

end32:  movw    $0x3f8, %dx
        movb    %bl, %al
        outb    %al, %dx
        movw    $0x600, %dx
        movb    $0x34, %al
        outb    %al, %dx
        hlt
        jmp     end32

        .code64
long:   movl    $0x10, %eax
        movl    %eax, %ds
        movl    %eax, %es
        movl    %eax, %ss
        movl    $stack_end, %esp

# Step 3: an exception in long mode, and IRETQ from it.
        movq    $handler64, %rax
        movw    %ax, idt64 + 3 * 16
        movw    $0x18, idt64 + 3 * 16 + 2
        movw    $0x8e00, idt64 + 3 * 16 + 4
        shrq    $16, %rax
        movw    %ax, idt64 + 3 * 16 + 6
        lidt    idt64_pointer
        int3
        movb    $'2', %bl
        cmpl    $2, caught
        jne     end64

# Step 4: 16 bytes compared and exchanged under lock, as memory allocators do.
        movb    $'3', %bpl
        xorl    %eax, %eax
        xorl    %edx, %edx
        movl    $1, %ecx
        movl    $1, %ebx
        lock cmpxchg16b area
        cmpl    $1, area
        movb    %bpl, %bl
        jne     end64

# Step 5: the state of the FPU, by XSAVE where the processor has it.
        movl    $1, %eax
        cpuid
        fxsave  area
        fxrstor area
        testl   $1 << 26, %ecx
        jz      3f
        movq    %cr4, %rax
        orl     $1 << 18, %eax
        movq    %rax, %cr4
        movl    $3, %eax
        xorl    %edx, %edx
        xorl    %ecx, %ecx
        xsetbv
        movl    $3, %eax
        xorl    %edx, %edx
        xsave64 area
        xrstor64 area
3:      movb    $'K', %bl

end64:  movw    $0x3f8, %dx
        movb    %bl, %al
        outb    %al, %dx
        movw    $0x600, %dx
        movb    $0x34, %al
        outb    %al, %dx
        hlt
        jmp     end64

handler64:
        incl    caught
        iretq

        .data
        .balign 8
gdt:    .quad   0
        .quad   0x00cf9b000000ffff      # 0x08: 32-bit code
        .quad   0x00cf93000000ffff      # 0x10: data
        .quad   0x00af9b000000ffff      # 0x18: 64-bit code
gdt_pointer:
        .word   . - gdt - 1
        .long   gdt
idt32_pointer:
        .word   32 * 8 - 1
        .long   idt32
idt64_pointer:
        .word   32 * 16 - 1
        .quad   idt64
caught: .long   0

        .bss
        .balign 4096
level4: .skip   4096
level3: .skip   4096
level2: .skip   4096
area:   .skip   4096
idt32:  .skip   32 * 8
idt64:  .skip   32 * 16
        .balign 16
stack:  .skip   1024
stack_end:
