package tftpd

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFileCache(t *testing.T) {
	t.Parallel()
	c := &fileCache{files: map[fileID]*cachedFile{}}
	path := filepath.Join(t.TempDir(), "f")
	open := func(text string) content {
		t.Helper()
		if text != "" {
			if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return c.open(f, info)
	}
	want := func(k content, text string) {
		t.Helper()
		b := make([]byte, k.size)
		if _, err := k.ReadAt(b, 0); err != nil || string(b) != text {
			t.Errorf("content %q, %v, want %q", b, err, text)
		}
	}
	one := open("one")
	two := open("")
	if len(c.files) != 1 || c.used != 3 || !one.inMemory {
		t.Errorf("two users of one file: %d files of %d bytes", len(c.files), c.used)
	}
	other := open("other") // in place of the file that the first two read
	want(one, "one")
	want(two, "one")
	want(other, "other")
	for _, k := range []content{one, two, other} {
		if err := k.close(); err != nil {
			t.Error(err)
		}
	}
	if len(c.files) != 0 || c.used != 0 {
		t.Errorf("no user is left, and %d files of %d bytes are cached", len(c.files), c.used)
	}
	c.used = maxCacheBytes
	full := open("")
	if full.inMemory || len(c.files) != 0 {
		t.Error("the cache was full, and the file was added")
	}
	want(full, "other")
	if err := full.close(); err != nil {
		t.Error(err)
	}
}
