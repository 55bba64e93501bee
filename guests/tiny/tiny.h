/* What the parts of the tiny guest share. */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

void say(const char *text);
void say_hex(u32 value, int digits);

/* Find the hot-plug registers, from the ACPI tables at `rsdp`. */
void hotplug_open(u64 rsdp);

/* Do what the events since the last call ask for; not 0 when the power button was pressed. */
int hotplug_poll(void);
