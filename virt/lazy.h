#define LIBVIRT "libvirt.so.0"

// libvirtOpen loads libvirt for the whole program. It returns NULL, or what is wrong; it may be tried again.
const char *libvirtOpen(void);
