package virt_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/virt"
)

// images returns one image and one config document.
type images struct {
	file   fs.FS
	config string
}

func (i *images) Image(string) (string, func() (fs.File, error), error) {
	const name = "images/base.qcow2"
	return name, func() (fs.File, error) { return i.file.Open(name) }, nil
}

func (i *images) Documents(string) ([]virt.Document, error) {
	if i.config == "" {
		return nil, nil
	}
	return []virt.Document{{Name: "user-data", Body: []byte(i.config)}, {Name: "meta-data", Body: []byte("instance-id: i-1\nlocal-hostname: master-0\n")}}, nil
}

func fromImage(h *lab.Host) {
	h.Profile = &lab.Profile{Name: "base", OS: lab.OSCoreOS, Image: "images/base.qcow2", Config: "base.ign"}
	h.VM.Disks = nil
}

// qcow2 returns the header of an image with a virtual size of n bytes.
func qcow2(n uint64) []byte {
	b := make([]byte, 512)
	copy(b, "QFI\xfb")
	binary.BigEndian.PutUint64(b[24:], n)
	return b
}

const (
	baseVolume = "bootlab-base-base-4ec3be56.qcow2"
	ignition   = `{"ignition":{"version":"3.4.0"}}`
)

func TestMachineFromImage(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newFake()
	i := &images{file: fstest.MapFS{"images/base.qcow2": {Data: qcow2(1 << 30)}}, config: ignition}
	b := newTestServerOf(t, i, oneHost(fromImage), virt.Config{}, virt.Deps{Driver: f})
	check(t, b.Create(ctx, "master-0"))
	wantCalls(t, f, "upload "+baseVolume, "delete-volume master-0.ign", "upload master-0.ign", "create-volume "+volume, "define master-0")
	if diff := cmp.Diff([]string{string(qcow2(1 << 30)), ignition}, f.uploads); diff != "" {
		t.Errorf("uploads (-want +got)\n%s", diff)
	}
	for _, d := range f.domains {
		for _, want := range []string{`<entry name="opt/com.coreos/config" file="/pool/master-0.ign">`, `file="/pool/` + volume + `"`, `<boot order="1">`} {
			if !strings.Contains(d.xml, want) {
				t.Errorf("domain has no %s:\n%s", want, d.xml)
			}
		}
		if strings.Count(d.xml, "<boot ") != 1 {
			t.Errorf("the domain has more boot devices than its disk:\n%s", d.xml)
		}
	}

	// The second machine of the image uses the uploaded one.
	b.use(t, oneHost(fromImage, func(h *lab.Host) { h.Name, h.MACs = "worker-0", []lab.MAC{{0x52, 0x54, 0, 0, 2, 9}} }))
	check(t, b.Create(ctx, "worker-0"))
	wantCalls(t, f, "delete-volume worker-0.ign", "upload worker-0.ign", "create-volume worker-0-vda.qcow2", "define worker-0")
	check(t, b.Delete(ctx, "worker-0", virt.DeleteDisks))
	wantCalls(t, f, "undefine worker-0", "delete-volume worker-0.ign", "delete-volume worker-0-vda.qcow2")

	// An incomplete upload is replaced.
	f.lengths[baseVolume] = 100
	check(t, b.Create(ctx, "worker-0"))
	wantCalls(t, f, "delete-volume "+baseVolume, "upload "+baseVolume, "delete-volume worker-0.ign", "upload worker-0.ign",
		"create-volume worker-0-vda.qcow2", "define worker-0")
}

func TestMachineFromImageErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		data   []byte // nil: no file
		change func(*lab.Host)
		none   bool
		want   string
	}{
		{"no source", nil, func(*lab.Host) {}, true, "profile base makes machines from an image, but there is no source of images"},
		{"missing", nil, func(*lab.Host) {}, false, "file does not exist"},
		{"empty", []byte{}, func(*lab.Host) {}, false, "is empty"},
		{"compressed", []byte("\xfd7zXZ\x00 and so on"), func(*lab.Host) {}, false, "base.qcow2 is compressed"},
		{"too large", qcow2(2 << 30), func(h *lab.Host) { h.VM.Disks = []lab.Disk{{Size: gib}} }, false, "the first disk has 1073741824 bytes and the image needs 2147483648"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			files := fstest.MapFS{}
			if tt.data != nil {
				files["images/base.qcow2"] = &fstest.MapFile{Data: tt.data}
			}
			i := virt.Files(&images{file: files, config: ignition})
			if tt.none {
				i = nil
			}
			b := newTestServerOf(t, i, oneHost(fromImage, tt.change), virt.Config{}, virt.Deps{Driver: f})
			wantErr(t, b.Create(t.Context(), "master-0"), tt.want)
			wantCalls(t, f)
		})
	}
}

func TestFailedCreateKeepsTheImage(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.fail["define"] = errors.New("no")
	i := &images{file: fstest.MapFS{"images/base.qcow2": {Data: []byte("a raw disk")}}, config: ignition}
	b := newTestServerOf(t, i, oneHost(fromImage), virt.Config{}, virt.Deps{Driver: f})
	wantErr(t, b.Create(t.Context(), "master-0"), "no")
	calls := f.takeCalls()
	if len(calls) != 7 || calls[5] != "delete-volume master-0.ign" || calls[6] != "delete-volume "+volume {
		t.Errorf("calls %v: want the machine's own volumes deleted, and the image kept", calls)
	}
}

// TestImageBesideAKernelIsNoDisk: an image beside a kernel is for the installer.
func TestImageBesideAKernelIsNoDisk(t *testing.T) {
	t.Parallel()
	l := oneHost(func(h *lab.Host) { h.Profile = &lab.Profile{Name: "ubuntu", Kernel: "vmlinuz", Image: "ubuntu.iso"} })
	table, err := virt.Compile(l)
	check(t, err)
	xml, err := table.XML("master-0")
	check(t, err)
	if !strings.Contains(xml, `<boot order="2">`) {
		t.Errorf("the network is not the first boot device:\n%s", xml)
	}
}

// A reloading hypervisor is asked for its domains while the lab is reloaded.
type reloading struct {
	*fake
	reload func()
}

func (r *reloading) Open(string, func([]string)) virt.Hypervisor { return r }

func (r *reloading) Domains(ctx context.Context) ([]virt.Domain, error) {
	r.reload()
	return r.fake.Domains(ctx)
}

// TestReloadWhileCreated: a machine gets the image and the document of the lab in which its creation began.
func TestReloadWhileCreated(t *testing.T) {
	t.Parallel()
	f := &reloading{fake: newFake()}
	b := newTestServerOf(t, &images{file: fstest.MapFS{"images/base.qcow2": {Data: qcow2(1 << 30)}}, config: "before"}, oneHost(fromImage), virt.Config{}, virt.Deps{Driver: f})
	f.reload = sync.OnceFunc(func() {
		b.files = &images{file: fstest.MapFS{"images/base.qcow2": {Data: qcow2(2 << 30)}}, config: "after"}
		b.use(t, oneHost(fromImage))
	})
	check(t, b.Create(t.Context(), "master-0"))
	if diff := cmp.Diff([]string{string(qcow2(1 << 30)), "before"}, f.uploads); diff != "" {
		t.Errorf("uploads (-want +got)\n%s", diff)
	}
}
