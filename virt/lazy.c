//go:build cgo && libvirt_dlopen

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "lazy.h"

typedef void *opener(const char *, int);

static opener *realDlopen(void) { return (opener *)dlsym(RTLD_NEXT, "dlopen"); }

// The Go binding opens libvirt in an init function, so that every process would load it and the sixty libraries behind it:
// 9 MiB resident and 15 ms, also for "bootlab check". This dlopen comes first for the whole program and answers the
// binding's call with a handle of the program itself. Whatever is looked up in that handle is searched in all libraries
// that were opened for everybody, and that is how libvirtOpen opens libvirt once it is wanted. Every other library is
// opened as ever.
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
