package recipe_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/boot/recipe"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/golden"
)

// TestGRUB holds GRUB's configurations against golden files; test/e2e sees the GRUB that Debian signed run them.
func TestGRUB(t *testing.T) {
	t.Parallel()
	for _, p := range []*lab.Profile{
		{Name: "debian", OS: lab.OSDebian, Kernel: "debian/linux", Initrd: []string{"debian/initrd.gz"}, Config: "preseed.cfg"},
		{Name: "cloud-init", OS: lab.OSCloudInit, Kernel: "vmlinuz", Initrd: []string{"a.img", "b.img"}, Config: "user-data"},
		{Name: "memtest", Kernel: "memtest.efi", Args: []string{`dyndbg="file drivers/net +p" $x`, "a={1;2}"}},
	} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			r, d := compile(t, p, fstest.MapFS{})
			got, err := r.GRUB(d)
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, update, "testdata/"+p.Name+".grub", string(got))
		})
	}
	golden.Check(t, update, "testdata/local-boot.grub", string(recipe.GRUBLocalBoot("worker-0", "is installed: starting from its own disk", lab.LocalBootAuto)))
	golden.Check(t, update, "testdata/local-boot-exit.grub", string(recipe.GRUBLocalBoot("worker-0", "is installed: starting from its own disk", lab.LocalBootExit)))
	golden.Check(t, update, "testdata/bootloop.grub", string(recipe.GRUBBootLoop("worker-0", "got its script too often")))
	golden.Check(t, update, "testdata/nothing.grub", string(recipe.GRUBNothing(lab.MAC{0x52, 0x54, 0, 0, 2, 4})))
}

func TestGRUBRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		profile lab.Profile
		want    string
	}{
		{"a script", lab.Profile{IPXE: "s.ipxe"}, "is an iPXE script, which GRUB cannot run"},
		{"another way", lab.Profile{OS: lab.OSWindows, Kernel: "k"}, "os windows is started in a way that GRUB does not know"},
		{"a quote", lab.Profile{Kernel: "k", Args: []string{"motd=it's"}}, "GRUB puts a backslash before"},
		{"a blank in a path", lab.Profile{Kernel: "k", Initrd: []string{"a b.img"}}, `GRUB cannot fetch "a b.img"`},
		{"a backslash", lab.Profile{Kernel: "k", Args: []string{`path=c:\x`}}, "GRUB puts a backslash before"},
		{"an open quote", lab.Profile{Kernel: "k", Args: []string{`a="b c`}}, "a double quote is not closed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.profile.Name = "p"
			r, d := compile(t, &tt.profile, fstest.MapFS{"s.ipxe": {Data: []byte("#!ipxe\n")}})
			if _, err := r.GRUB(d); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// TestFaultsOfGRUB: a host whose chain ends in GRUB is checked against what GRUB can do; others may write what they like.
func TestFaultsOfGRUB(t *testing.T) {
	t.Parallel()
	for chain, want := range map[lab.Chain]string{lab.ChainGRUB: "chain: args: GRUB puts a backslash", lab.ChainIPXE: ""} {
		p := &lab.Profile{Name: "p", Kernel: "k", Args: []string{"motd=it's"}}
		r, problems := recipe.Compile(p, fstest.MapFS{})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		l, h := worker(p)
		h.Chain = chain
		d, err := r.Data(l, h, h.MACs[0], "TOKEN")
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range r.Faults(d) {
			got += f.Key + ": " + f.Err.Error()
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("chain %s: %q, want %q", chain, got, want)
		}
	}
}

// FuzzGRUBWords asserts that words come out of a kernel's command line as the kernel reads them: all that is not a blank
// or a quote, in order, and never a character that GRUB would change.
func FuzzGRUBWords(f *testing.F) {
	for _, seed := range []string{"a b", ` a="b  c" `, `"`, `''`, "x\ty", `a""b`, `"" x`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words, err := recipe.KernelWords(line)
		if err != nil {
			return
		}
		drop := strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "", `"`, "")
		want := drop.Replace(strings.ToValidUTF8(line, "\uFFFD"))
		if got := drop.Replace(strings.ToValidUTF8(strings.Join(words, ""), "\uFFFD")); strings.ReplaceAll(got, "\uFFFD", "") != strings.ReplaceAll(want, "\uFFFD", "") {
			t.Errorf("%q became %q (-want +got)\n%s", line, words, cmp.Diff(want, got))
		}
		if strings.ContainsAny(strings.Join(words, ""), `'"\`) {
			t.Errorf("%q became %q", line, words)
		}
	})
}
