package virt

// Hosts returns the names of the hosts that are virtual machines, sorted.
func (t *Table) Hosts() []string {
	names := make([]string, len(t.machines))
	for i, m := range t.machines {
		names[i] = m.host.Name
	}
	return names
}

// VolumeXML returns the XML of the volumes that are created for a host, in the order of its disks.
func (t *Table) VolumeXML(host string) ([]string, error) {
	m, err := t.machine(host)
	if err != nil {
		return nil, err
	}
	m = m.first()
	var xmls []string
	for i, d := range m.disksOf() {
		if d.Volume != "" {
			continue
		}
		xml, err := m.volume(i).Marshal()
		if err != nil {
			return nil, err
		}
		xmls = append(xmls, xml)
	}
	return xmls, nil
}
