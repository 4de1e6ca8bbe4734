#define LIBVIRT "libvirt.so.0"

// libvirtOpen loads libvirt for the whole program. It returns NULL or an error message. It may be called again.
const char *libvirtOpen(void);
