//go:build cgo && libvirt_dlopen

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "dlopen.h"

typedef void *opener(const char *, int);

static opener *realDlopen(void) { return (opener *)dlsym(RTLD_NEXT, "dlopen"); }

// The Go binding opens libvirt in an init function, which would load it and its sixty libraries in every process: 9 MiB
// resident and 15 ms, also for "bootlab check". This dlopen overrides libc's for the whole program, and answers the
// binding's call with a handle of the program itself. dlsym with that handle searches all libraries that were opened with
// RTLD_GLOBAL, as libvirtOpen opens libvirt later. Calls for other libraries are passed on.
void *dlopen(const char *name, int flags) {
	opener *real = realDlopen();
	if (name != NULL && strcmp(name, LIBVIRT) == 0 && (flags & RTLD_GLOBAL) == 0) {
		return real(NULL, RTLD_NOW);
	}
	return real(name, flags);
}

// quiet keeps libvirt from writing to stderr: its errors are returned too.
static void quiet(void *data, void *err) {
	(void)data;
	(void)err;
}

const char *libvirtOpen(void) {
	if (dlopen(LIBVIRT, RTLD_NOW | RTLD_GLOBAL) == NULL) {
		return dlerror();
	}
	void (*setErrorFunc)(void *, void (*)(void *, void *)) = dlsym(RTLD_DEFAULT, "virSetErrorFunc");
	if (setErrorFunc != NULL) {
		setErrorFunc(NULL, quiet);
	}
	return NULL;
}
