/*
 * ACPI's hot-plug by hand, as a board without legacy devices has it: a generic event device (GED) tells by one byte
 * what happened, and small register blocks tell which PCI slot or CPU. All lie above 4 GiB, at addresses that only the
 * DSDT names, in operation regions called GDST, PCST and PRST. They are reached through a window in IA-32e paging that
 * is open during one access, as everything else runs without paging.
 */
#include "tiny.h"

enum {
    EVENT_CPU = 1, EVENT_MEMORY = 2, EVENT_PCI = 4, EVENT_BUTTON = 8,
    PCI_UP = 0, PCI_DOWN = 4, PCI_EJECT = 8, PCI_SEGMENT = 12,
    CPU_SELECT = 0, CPU_FLAGS = 4,
    CPU_INSERTING = 2, CPU_REMOVING = 4, CPU_EJECT = 8,
    CPUS = 16,
    WINDOW = 0xc0000000u,
    LARGE = 1 << 21,
    SYSTEM_MEMORY = 0,
    QWORD = 0x0e, DWORD = 0x0c,
};

static u64 level4[512] __attribute__((aligned(4096)));
static u64 level3[512] __attribute__((aligned(4096)));
static u64 low[512] __attribute__((aligned(4096)));
static u64 window[512] __attribute__((aligned(4096)));
static u64 events, pci, cpus;

static void open_window(u64 address) {
    u32 value;
    u64 base = address & ~(u64)(LARGE - 1);
    window[0] = base | 0x9b; /* present, writable, not cached, large */
    window[1] = (base + LARGE) | 0x9b;
    __asm__ volatile("mov %%cr4, %0; or $0x20, %0; mov %0, %%cr4" : "=r"(value));
    __asm__ volatile("mov %0, %%cr3" ::"r"(level4) : "memory");
    __asm__ volatile("rdmsr; or $0x100, %%eax; wrmsr" ::"c"(0xc0000080) : "eax", "edx");
    __asm__ volatile("mov %%cr0, %0; or $0x80000000, %0; mov %0, %%cr0; jmp 1f; 1:" : "=r"(value)::"memory");
}

static void close_window(void) {
    u32 value;
    __asm__ volatile("mov %%cr0, %0; and $0x7fffffff, %0; mov %0, %%cr0; jmp 1f; 1:" : "=r"(value)::"memory");
    __asm__ volatile("rdmsr; and $0xfffffeff, %%eax; wrmsr" ::"c"(0xc0000080) : "eax", "edx");
    __asm__ volatile("mov %%cr4, %0; and $0xffffffdf, %0; mov %0, %%cr4" : "=r"(value));
}

#define AT(type, address) ((volatile type *)(WINDOW + (u32)((address) & (LARGE - 1))))

static u8 read8(u64 address) {
    open_window(address);
    u8 value = *AT(u8, address);
    close_window();
    return value;
}

static u32 read32(u64 address) {
    open_window(address);
    u32 value = *AT(u32, address);
    close_window();
    return value;
}

static void write8(u64 address, u8 value) {
    open_window(address);
    *AT(u8, address) = value;
    close_window();
}

static void write32(u64 address, u32 value) {
    open_window(address);
    *AT(u32, address) = value;
    close_window();
}

static u64 number_at(const u8 *at, int bytes) {
    u64 value = 0;
    while (bytes--)
        value = value << 8 | at[bytes];
    return value;
}

/* The address of an OperationRegion (AML 5b 80 NAME space offset ...) in system memory. */
static u64 region(const u8 *table, u32 length, const char *name) {
    for (u32 i = 0; i + 16 < length; i++) {
        const u8 *at = table + i;
        if (at[0] != 0x5b || at[1] != 0x80 || at[2] != name[0] || at[3] != name[1] || at[4] != name[2] ||
            at[5] != name[3] || at[6] != SYSTEM_MEMORY)
            continue;
        if (at[7] == QWORD)
            return number_at(at + 8, 8);
        if (at[7] == DWORD)
            return number_at(at + 8, 4);
    }
    return 0;
}

static int is_called(const u8 *table, const char *name) {
    return table[0] == name[0] && table[1] == name[1] && table[2] == name[2] && table[3] == name[3];
}

static const u8 *pointer_at(const u8 *at, int bytes) { return (const u8 *)(u32)number_at(at, bytes); }

void hotplug_open(u64 rsdp) {
    const u8 *root = rsdp && !(rsdp >> 32) ? pointer_at((const u8 *)(u32)rsdp + 24, 8) : 0;
    if (!root)
        return;
    u32 count = (number_at(root + 4, 4) - 36) / 8;
    for (u32 i = 0; i < count; i++) {
        const u8 *table = pointer_at(root + 36 + 8 * i, 8);
        if (!is_called(table, "FACP"))
            continue;
        const u8 *dsdt = pointer_at(table + 140, 8);
        if (!dsdt)
            dsdt = pointer_at(table + 40, 4);
        u32 length = number_at(dsdt + 4, 4);
        events = region(dsdt, length, "GDST");
        pci = region(dsdt, length, "PCST");
        cpus = region(dsdt, length, "PRST");
    }
    level4[0] = (u32)level3 | 3;
    level3[0] = (u32)low | 3;
    level3[3] = (u32)window | 3;
    for (u32 i = 0; i < 512; i++)
        low[i] = (u64)i << 21 | 0x83;
}

static void poll_pci(void) {
    write32(pci + PCI_SEGMENT, 0);
    u32 up = read32(pci + PCI_UP), down = read32(pci + PCI_DOWN);
    if (up) {
        say("plugged ");
        say_hex(up, 8);
        say("\r\n");
    }
    if (down) {
        write32(pci + PCI_EJECT, down);
        say("ejected ");
        say_hex(down, 8);
        say("\r\n");
    }
}

static void poll_cpus(void) {
    for (u32 cpu = 0; cpu < CPUS; cpu++) {
        write32(cpus + CPU_SELECT, cpu);
        u8 flags = read8(cpus + CPU_FLAGS);
        if (flags & CPU_INSERTING) {
            say("cpu plugged ");
            say_hex(cpu, 2);
            say("\r\n");
            write8(cpus + CPU_FLAGS, CPU_INSERTING);
        }
        if (flags & CPU_REMOVING) {
            say("cpu ejected ");
            say_hex(cpu, 2);
            say("\r\n");
            write8(cpus + CPU_FLAGS, CPU_REMOVING);
            write8(cpus + CPU_FLAGS, CPU_EJECT);
        }
    }
}

int hotplug_poll(void) {
    if (!events)
        return 0;
    u8 happened = read8(events); /* reading clears */
    if (happened & EVENT_PCI && pci)
        poll_pci();
    if (happened & EVENT_CPU && cpus)
        poll_cpus();
    if (happened & EVENT_MEMORY)
        say("memory plugged\r\n");
    return happened & EVENT_BUTTON;
}
