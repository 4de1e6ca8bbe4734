package lab

// LoadAppliance reads as much of the appliance as the lab file at path lets itself be read; the rest has its default. It
// is for programs that talk to a daemon: theirs is to work while the lab file is being edited.
func LoadAppliance(path string) (a Appliance) {
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
