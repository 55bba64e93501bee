# A disk that boots: the first sector counts on COM1, the second holds a line of text that survives restarts.
#
# It prints "ANYVISOR disk LABEL" (LABEL = the text of sector 1), then "ANYVISOR t=N" about nine times a second.
# It has no ACPI, so it is also the guest that ignores the power button. Input, one byte each:
#   p  pong                             r  read sector 1 again and print it
#   w  and one byte more: write that byte to the start of sector 1 and back to the disk
#   o  power off                        b  reboot

        .code16
        .set    COM1, 0x3f8
        .set    BIOS_TICKS, 0x046c      # 18.2 a second
        .set    SECTOR, 0x8000

        .globl  boot
boot:   cli
        xorw    %ax, %ax
        movw    %ax, %ds
        movw    %ax, %es
        movw    %ax, %ss
        movw    $boot, %sp
        sti
        cld
        movb    %dl, drive
        movw    $0x00e3, %ax            # 9600 8n1
        xorw    %dx, %dx
        int     $0x14
        call    show_label

wait:   hlt
        movw    $COM1 + 5, %dx
        inb     %dx, %al
        testb   $1, %al
        jnz     input
        movw    BIOS_TICKS, %ax
        subw    last, %ax
        cmpw    $2, %ax
        jb      wait
        addw    %ax, last
        incl    count
        movw    $counter, %si
        call    say
        movl    count, %eax
        call    say_number
        call    end_line
        jmp     wait

input:  call    get
        cmpb    $'p', %al
        je      ping
        cmpb    $'r', %al
        je      label
        cmpb    $'w', %al
        je      write
        cmpb    $'b', %al
        je      reboot
        cmpb    $'o', %al
        jne     wait
        movw    $0x604, %dx             # q35 and pc under the usual firmware: PM1 control
        movw    $0x2000, %ax
        outw    %ax, %dx
        jmp     wait
reboot: ljmp    $0xffff, $0
ping:   movw    $pong, %si
        call    say
        jmp     wait
label:  call    show_label
        jmp     wait
write:  call    get
        movb    %al, SECTOR
        movb    $0x43, %ah
        call    disk
        jc      failed
        movw    $written, %si
        call    say
        jmp     wait
failed: movw    $error, %si
        call    say
        jmp     wait

show_label:
        movw    $banner, %si
        call    say
        movb    $0x42, %ah
        call    disk
        movw    $error, %si
        jc      say
        movb    $0, SECTOR + 64
        movw    $SECTOR, %si
        call    say
end_line:
        movw    $newline, %si

say:    lodsb
        testb   %al, %al
        jz      done
        call    put
        jmp     say

say_number:                             # %eax in decimal
        xorw    %cx, %cx
        movl    $10, %ebx
1:      xorl    %edx, %edx
        divl    %ebx
        pushw   %dx
        incw    %cx
        testl   %eax, %eax
        jnz     1b
2:      popw    %ax
        addb    $'0', %al
        call    put
        loop    2b
        ret

put:    pushw   %ax
        movw    $COM1 + 5, %dx
1:      inb     %dx, %al
        testb   $0x20, %al
        jz      1b
        popw    %ax
        movw    $COM1, %dx
        outb    %al, %dx
done:   ret

get:    movw    $COM1 + 5, %dx
1:      inb     %dx, %al
        testb   $1, %al
        jz      1b
        movw    $COM1, %dx
        inb     %dx, %al
        ret

disk:   movw    $packet, %si
        movb    drive, %dl
        movb    $0, %al
        int     $0x13
        ret

banner: .asciz  "\r\nANYVISOR disk "
counter: .asciz "ANYVISOR t="
pong:   .asciz  "pong\r\n"
written: .asciz "written\r\n"
error:  .asciz  "ANYVISOR disk error"
newline: .asciz "\r\n"
drive:  .byte   0
        .balign 4
count:  .long   0
last:   .word   0
        .balign 4
packet: .byte   16, 0                   # disk address packet: one sector, to SECTOR, from block 1
        .word   1, SECTOR, 0
        .quad   1

        .org    510
        .word   0xaa55
