/*
 * The tiny guest: says "ANYVISOR t=N" on COM1 ten times a second, sleeps in HLT in between, answers lines, and
 * powers off when the ACPI power button is pressed. It boots in a few milliseconds and needs no disk. On a board with
 * hot-plug events it lets go of PCI devices and CPUs that are to be removed (hotplug.c).
 *
 * Lines that it understands:
 *   ping          pong
 *   echo TEXT     TEXT
 *   cmdline       its kernel command line
 *   pci           one line for each PCI function
 *   quiet, count  stop and resume the counter lines
 *   flood         write without pause until the next input byte
 *   dirty N       write to N MiB of memory on each tick (0 ends it)
 *   deaf          ignore the power button from now on
 *   fault         run into an undefined instruction
 *   off, reset    power off, reset
 */

#include "tiny.h"

/* struct hvm_start_info of the PVH boot protocol */
struct start_info {
    u32 magic, version, flags, modules;
    u64 module_list, command_line, rsdp, memory_map;
    u32 memory_map_entries, reserved;
};

enum {
    COM1 = 0x3f8,
    VECTOR_SERIAL = 0x24,
    VECTOR_ACPI = 0x29,
    VECTOR_TIMER = 0x30,
    VECTOR_SPURIOUS = 0xff,
    BUS_CLOCK_PER_TICK = 100000000, /* the local APIC counts at 1 GHz on QEMU and KVM: 100 ms */
    HOST_BRIDGE_Q35 = 0x29c08086,
    HOST_BRIDGE_PC = 0x12378086,
    HOST_BRIDGE_CLOUD = 0x0d578086, /* Cloud Hypervisor: hardware-reduced ACPI */
    ACPI_BASE = 0x600, /* PM1 block, where the firmware of both boards puts it */
    POWER_BUTTON = 0x100,
    SLEEP_PORT = 0x600, /* hardware-reduced ACPI: the sleep control register */
    DIRTY_START = 16 << 20,
};

static inline void outb(u16 port, u8 value) { __asm__ volatile("outb %0, %1" ::"a"(value), "Nd"(port)); }
static inline void outw(u16 port, u16 value) { __asm__ volatile("outw %0, %1" ::"a"(value), "Nd"(port)); }
static inline void outl(u16 port, u32 value) { __asm__ volatile("outl %0, %1" ::"a"(value), "Nd"(port)); }
static inline u8 inb(u16 port) { u8 v; __asm__ volatile("inb %1, %0" : "=a"(v) : "Nd"(port)); return v; }
static inline u16 inw(u16 port) { u16 v; __asm__ volatile("inw %1, %0" : "=a"(v) : "Nd"(port)); return v; }
static inline u32 inl(u16 port) { u32 v; __asm__ volatile("inl %1, %0" : "=a"(v) : "Nd"(port)); return v; }

static volatile u32 *const local_apic = (u32 *)0xfee00000;
static volatile u32 *const io_apic = (u32 *)0xfec00000;

static const struct start_info *start;
static volatile u32 ticks;
static volatile u8 input[256];
static volatile u8 input_head, input_tail;
static volatile int button_pressed;
static int has_acpi, has_events, deaf, counting = 1;
static u32 dirty_mib;

/* --- output --- */

static void put(char c) {
    while (!(inb(COM1 + 5) & 0x20))
        ;
    outb(COM1, c);
}

void say(const char *text) {
    while (*text)
        put(*text++);
}

void say_hex(u32 value, int digits) {
    while (digits--)
        put("0123456789abcdef"[(value >> (4 * digits)) & 15]);
}

static void say_number(u32 value) {
    char digits[10];
    int n = 0;
    do {
        digits[n++] = '0' + value % 10;
        value /= 10;
    } while (value);
    while (n)
        put(digits[--n]);
}

/* --- interrupts --- */

static void end_of_interrupt(void) { local_apic[0xb0 / 4] = 0; }

static void drain_serial(void) {
    while (inb(COM1 + 5) & 1)
        input[input_head++] = inb(COM1);
}

void on_timer(void) {
    ticks++;
    end_of_interrupt();
}

void on_serial(void) {
    drain_serial();
    end_of_interrupt();
}

void on_acpi(void) {
    u16 status = inw(ACPI_BASE);
    if (status & POWER_BUTTON)
        button_pressed = 1;
    outw(ACPI_BASE, status); /* write one to clear: lowers the level-triggered line */
    end_of_interrupt();
}

void on_fault(void) { say("\r\nANYVISOR fault\r\n"); }

extern char timer_entry[], serial_entry[], acpi_entry[], spurious_entry[], fault_entry[];
static u64 idt[256];

static void set_gate(int vector, const void *entry) {
    u32 address = (u32)entry;
    idt[vector] = (u64)((address & 0xffff0000) | 0x8e00) << 32 | 0x08u << 16 | (address & 0xffff);
}

static void route(u32 pin, u32 low) {
    io_apic[0] = 0x11 + 2 * pin;
    io_apic[4] = 0;
    io_apic[0] = 0x10 + 2 * pin;
    io_apic[4] = low;
}

static void open_interrupts(void) {
    struct { u16 limit; u32 base; } __attribute__((packed)) pointer = {sizeof idt - 1, (u32)idt};
    for (int i = 0; i < 32; i++)
        set_gate(i, fault_entry);
    set_gate(VECTOR_SERIAL, serial_entry);
    set_gate(VECTOR_ACPI, acpi_entry);
    set_gate(VECTOR_TIMER, timer_entry);
    set_gate(VECTOR_SPURIOUS, spurious_entry);
    __asm__ volatile("lidt %0" ::"m"(pointer));
    outb(0x21, 0xff); /* the old interrupt controller stays silent */
    outb(0xa1, 0xff);
    local_apic[0xf0 / 4] = 0x100 | VECTOR_SPURIOUS;
    local_apic[0x3e0 / 4] = 0xb; /* divide by 1 */
    local_apic[0x320 / 4] = 0x20000 | VECTOR_TIMER; /* periodic */
    local_apic[0x380 / 4] = BUS_CLOCK_PER_TICK;
    route(4, VECTOR_SERIAL);
    if (has_acpi) {
        outw(ACPI_BASE, 0xffff);
        outw(ACPI_BASE + 2, POWER_BUTTON);
        route(9, 0x8000 | VECTOR_ACPI); /* level-triggered, active high */
    }
    outb(COM1 + 1, 1);
}

/* --- devices --- */

static void open_serial(void) {
    outb(COM1 + 1, 0);
    outb(COM1 + 3, 0x80);
    outb(COM1, 1); /* 115200 baud */
    outb(COM1 + 1, 0);
    outb(COM1 + 3, 3);
    outb(COM1 + 2, 7);
    outb(COM1 + 4, 0x0b);
}

static u32 pci_read(u32 bus, u32 slot, u32 function, u32 reg) {
    outl(0xcf8, 0x80000000 | bus << 16 | slot << 11 | function << 8 | (reg & 0xfc));
    return inl(0xcfc);
}

static void say_function(u32 bus, u32 slot, u32 function, u32 id) {
    say("pci ");
    say_hex(bus, 2);
    put(':');
    say_hex(slot, 2);
    put('.');
    say_hex(function, 1);
    put(' ');
    say_hex(id & 0xffff, 4);
    put(':');
    say_hex(id >> 16, 4);
    say("\r\n");
}

static void scan_bus(u32 bus) {
    for (u32 slot = 0; slot < 32; slot++) {
        u32 functions = 1;
        for (u32 function = 0; function < functions; function++) {
            u32 id = pci_read(bus, slot, function, 0);
            if (id == 0xffffffff || id == 0)
                continue;
            say_function(bus, slot, function, id);
            u32 header = pci_read(bus, slot, function, 0x0c) >> 16 & 0xff;
            if (header & 0x80)
                functions = 8;
            u32 below = pci_read(bus, slot, function, 0x18) >> 8 & 0xff;
            if ((header & 0x7f) == 1 && below > bus)
                scan_bus(below);
        }
    }
}

static void power_off(void) {
    say("ANYVISOR off\r\n");
    if (has_events)
        outb(SLEEP_PORT, 0x34); /* sleep enable, S5 */
    else
        outw(ACPI_BASE + 4, 0x2000); /* PM1 control: sleep enable, S5 */
}

static void reset(void) {
    say("ANYVISOR reset\r\n");
    outb(0xcf9, 2);
    outb(0xcf9, 6);
    outb(0x64, 0xfe);
}

/* --- commands --- */

static const char *after(const char *line, const char *word) {
    while (*word)
        if (*line++ != *word++)
            return 0;
    if (*line == ' ')
        return line + 1;
    return *line ? 0 : line;
}

static u32 number(const char *text) {
    u32 value = 0;
    while (*text >= '0' && *text <= '9')
        value = value * 10 + *text++ - '0';
    return value;
}

static void flood(void) {
    while (!(inb(COM1 + 5) & 1))
        say("ANYVISOR flood 0123456789 0123456789 0123456789 0123456789 0123456789\r\n");
}

static void command(const char *line) {
    const char *rest;
    if (after(line, "ping"))
        say("pong\r\n");
    else if ((rest = after(line, "echo"))) {
        say(rest);
        say("\r\n");
    } else if (after(line, "cmdline")) {
        say("cmdline ");
        if (start->command_line)
            say((const char *)(u32)start->command_line);
        say("\r\n");
    } else if (after(line, "pci")) {
        scan_bus(0);
        say("pci end\r\n");
    } else if (after(line, "quiet"))
        counting = 0;
    else if (after(line, "count"))
        counting = 1;
    else if (after(line, "flood"))
        flood();
    else if ((rest = after(line, "dirty")))
        dirty_mib = number(rest);
    else if (after(line, "deaf"))
        deaf = 1;
    else if (after(line, "fault"))
        __asm__ volatile("ud2");
    else if (after(line, "off"))
        power_off();
    else if (after(line, "reset"))
        reset();
    else if (*line) {
        say("unknown: ");
        say(line);
        say("\r\n");
    }
}

static void take_input(void) {
    static char line[128];
    static u32 length;
    while (input_tail != input_head) {
        char c = input[input_tail++];
        if (c == '\r' || c == '\n') {
            line[length] = 0;
            length = 0;
            command(line);
        } else if (length < sizeof line - 1)
            line[length++] = c;
    }
}

static void on_each_tick(void) {
    if (counting) {
        say("ANYVISOR t=");
        say_number(ticks);
        say("\r\n");
    }
    for (u32 offset = 0; offset < dirty_mib << 20; offset += 4096)
        *(volatile u32 *)(DIRTY_START + offset) = ticks;
}

void guest_main(const struct start_info *info) {
    u32 seen = 0;
    u32 bridge;
    start = info;
    open_serial();
    bridge = pci_read(0, 0, 0, 0);
    has_acpi = bridge == HOST_BRIDGE_Q35 || bridge == HOST_BRIDGE_PC;
    has_events = bridge == HOST_BRIDGE_CLOUD;
    if (has_events)
        hotplug_open(info->rsdp);
    open_interrupts();
    say("ANYVISOR tiny\r\n"); /* who hears this may press the power button */
    for (;;) {
        if (input_tail == input_head && seen == ticks)
            __asm__ volatile("sti; hlt; cli" ::: "memory", "cc");
        drain_serial(); /* an edge that came while the line was busy costs a tick, not the input */
        take_input();
        if (seen != ticks) {
            seen = ticks;
            on_each_tick();
            if (has_events && hotplug_poll())
                button_pressed = 1;
        }
        if (button_pressed && !deaf) {
            say("ANYVISOR button\r\n");
            power_off();
        }
        button_pressed = 0;
    }
}
