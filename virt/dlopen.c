//go:build cgo && libvirt_dlopen

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static bool forHypervisor;

__attribute__((constructor)) static void atStart(void) { forHypervisor = getenv("BOOTLAB_HYPERVISOR") != NULL; }

// The Go binding opens libvirt in an init function: in every process of this program. Only the process of a hypervisor may have
// the library and its sixty dependencies, so this dlopen, which overrides libc's, finds no libvirt in any other. The binding is
// the only caller that asks for it.
void *dlopen(const char *name, int flags) {
	void *(*real)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
	if (name != NULL && strncmp(name, "libvirt", 7) == 0 && !forHypervisor) {
		name = "libvirt is loaded in the process of a hypervisor only";
	}
	return real(name, flags);
}
