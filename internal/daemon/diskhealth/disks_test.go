package diskhealth

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

// TestFolders: a folder is measured in the background, one that does not exist or is not looked at any longer has no condition.
func TestFolders(t *testing.T) {
	t.Parallel()
	a, b := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var f Folders
		names := func(dirs ...string) (names []string) {
			f.Look(dirs...)
			synctest.Wait()
			for _, c := range f.Conditions() {
				if c.Kind != api.ConditionDisk || c.Detail == "" || !c.Since.Equal(time.Now()) {
					t.Errorf("condition %+v", c)
				}
				names = append(names, c.Name)
			}
			return names
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values([]string{a, b})), names(b, filepath.Join(a, "none"), a)); diff != "" {
			t.Errorf("folders (-want +got)\n%s", diff)
		}
		if err := os.Remove(b); err != nil {
			t.Fatal(err)
		}
		f.Look(b)
		synctest.Wait()
		if got := f.Conditions(); len(got) != 1 || got[0].OK || got[0].Problem != "was removed while in use" {
			t.Errorf("a folder that was removed: %+v", got)
		}
		time.Sleep(time.Second)
		if diff := cmp.Diff([]string{a}, names(a)); diff != "" {
			t.Errorf("after a lab with one folder (-want +got)\n%s", diff)
		}
	})
}

// TestConditions: what is said of a folder follows from its last measurement, and from one that has not ended.
func TestConditions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		time.Sleep(time.Minute)
		for _, tt := range []struct {
			name string
			m    measurement
			want api.Condition
		}{
			{"good", measurement{state: Disk{Bytes: 5 << 30, Inodes: 5000, CountsInodes: true}, at: began}, api.Condition{OK: true, Since: began, Detail: "5120 MiB free"}},
			{"no inodes are counted", measurement{state: Disk{Bytes: 5 << 30}, at: began}, api.Condition{OK: true, Since: began, Detail: "5120 MiB free"}},
			{"little space", measurement{state: Disk{Bytes: 1 << 20, Inodes: 5000, CountsInodes: true}, at: began},
				api.Condition{Since: began, Detail: "1 MiB free", Problem: "1024 KiB and 5000 inodes free, fewer than 65536 KiB or 1000: free some"}},
			{"few inodes", measurement{state: Disk{Bytes: 5 << 30, Inodes: 999, CountsInodes: true}, at: began},
				api.Condition{Since: began, Detail: "5120 MiB free", Problem: "5242880 KiB and 999 inodes free, fewer than 65536 KiB or 1000: free some"}},
			{"hangs", measurement{state: Disk{Bytes: 5 << 30}, at: began.Add(-time.Hour), busy: began},
				api.Condition{Since: began, Detail: "5120 MiB free", Problem: "disk does not respond"}},
			{"is measured", measurement{state: Disk{Bytes: 5 << 30}, at: began, busy: time.Now()}, api.Condition{OK: true, Since: began, Detail: "5120 MiB free"}},
		} {
			tt.want.Kind, tt.want.Name = api.ConditionDisk, "/d"
			f := Folders{folders: map[string]*measurement{"/d": &tt.m}}
			if diff := cmp.Diff([]api.Condition{tt.want}, f.Conditions()); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tt.name, diff)
			}
		}
		f := Folders{folders: map[string]*measurement{"/d": {busy: time.Now()}}}
		if got := f.Conditions(); len(got) > 0 {
			t.Errorf("before the first measurement: %+v", got)
		}
	})
}

// TestFiles: a file that does not exist is missing for the lab that was looked at, and is looked for again after a while.
func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		gone := &lab.Problem{Path: filepath.Join(dir, "none"), Message: "file not found"}
		l, all := &lab.Lab{}, func() lab.Problems { return lab.Problems{{Path: dir}, gone} }
		var f Files
		f.Look(l, all)
		synctest.Wait()
		if got := f.Missing(l); len(got) != 1 || got[0] != gone {
			t.Errorf("missing: %v", got)
		}
		if got := f.Missing(&lab.Lab{}); got != nil {
			t.Errorf("missing of a lab that was not looked at: %v", got)
		}
		gone.Path = dir
		f.Look(l, all)
		synctest.Wait()
		if got := f.Missing(l); len(got) != 1 {
			t.Errorf("missing at once after a look: %v", got)
		}
		time.Sleep(filesEvery)
		f.Look(l, all)
		synctest.Wait()
		if got := f.Missing(l); len(got) != 0 {
			t.Errorf("missing after the file was made: %v", got)
		}
	})
}
