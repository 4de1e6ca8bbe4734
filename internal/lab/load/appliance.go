package load

import (
	"bytes"

	"github.com/bootlab/bootlab/internal/lab"
)

// Appliance reads as much of the appliance as the lab file at path lets itself be read; the rest has its default. It
// is for programs that talk to a daemon: theirs is to work while the lab file is being edited.
func Appliance(path string) (a lab.Appliance) {
	d, raw := newDecoder(), new(rawLab)
	names, err := labFiles(path)
	if err != nil {
		names = []string{path}
	}
	for _, name := range names {
		data, err := readLimited(name)
		if err != nil {
			data = nil // its defaults
		}
		if _, err := oneDocument(data); err != nil {
			data = applianceBlock(data)
		}
		d.decodeFile(name, data, raw)
	}
	r := newResolver(d, raw, Options{})
	defer func() {
		_ = recover() // of a file that is no lab at all
		a = r.lab.Appliance
	}()
	r.general()
	r.appliance()
	return r.lab.Appliance
}

// applianceBlock cuts the appliance out of a file that is not YAML elsewhere: its key, and the lines below that are
// indented, comments or empty.
func applianceBlock(data []byte) (block []byte) {
	for line := range bytes.Lines(data) {
		switch {
		case bytes.HasPrefix(line, []byte("appliance:")):
			block = append(block, line...)
		case block == nil:
		case len(bytes.TrimSpace(line)) > 0 && !bytes.ContainsRune([]byte(" \t#"), rune(line[0])):
			return block
		default:
			block = append(block, line...)
		}
	}
	return block
}
