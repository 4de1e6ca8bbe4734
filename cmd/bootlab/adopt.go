package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

// adoptFlags override what bootlab would choose for the host.
type adoptFlags struct{ name, profile, ip string }

func adoptCommand(o *options) *cobra.Command {
	var f adoptFlags
	cmd := &cobra.Command{
		Use:   "adopt MAC",
		Short: "Print lab-file lines for an unknown machine",
		Args:  cobra.ExactArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return adopt(cmd, o, args[0], f) },
	}
	cmd.Flags().StringVar(&f.name, "name", "", "host `name`; default: from its serial number, DHCP host name, UUID or MAC")
	cmd.Flags().StringVar(&f.profile, "profile", "", "`profile` to boot; default: none")
	cmd.Flags().StringVar(&f.ip, "ip", "", "IPv4 `address`; default: its lease, or the next free address")
	return cmd
}

// adopt prints lines for the lab file. If the lab file is readable, a daemon would not refuse the lab because of them; why it would refuse the
// machine is a note.
func adopt(cmd *cobra.Command, o *options, what string, f adoptFlags) error {
	mac, err := lab.ParseMAC(what)
	if err != nil {
		return fmt.Errorf("%w; bootlab hosts --unknown lists unknown machines", err)
	}
	c, err := o.client()
	if err != nil {
		return err
	}
	a, err := c.Adoption(cmd.Context(), mac)
	if err != nil {
		return err
	}
	r, err := f.reservation(a)
	if err != nil {
		return err
	}
	t, err := newTrial(cmd.Context(), c, o.lab)
	if err != nil {
		return err
	}
	if err := t.take(r, f.names(a)); err != nil {
		return fmt.Errorf("adopt %s: %w", mac, err)
	}
	return o.print(cmd, t.news[0], func() error { return t.print(cmd) })
}

// names returns the names to try.
func (f adoptFlags) names(a api.Adoption) []string {
	if f.name != "" {
		return []string{f.name}
	}
	return a.Names
}

// reservation returns the host that a machine becomes, without its name.
func (f adoptFlags) reservation(a api.Adoption) (reservation, error) {
	r := reservation{MAC: a.MAC, IP: a.Wanted, Profile: f.profile, Note: note(a)}
	for _, m := range a.MACs {
		if m != a.MAC {
			r.More = append(r.More, m)
		}
	}
	if f.ip != "" {
		var err error
		a.From = ""
		r.Note = note(a)
		if r.IP, err = netip.ParseAddr(f.ip); err != nil {
			return r, fmt.Errorf("--ip %.60q is not an address", f.ip)
		}
	}
	switch {
	case !r.IP.IsValid() && a.Network != "":
		return r, fmt.Errorf("the machine has no lease, and network %s has no free address: set one with --ip", a.Network)
	case !r.IP.IsValid():
		return r, errors.New("the machine has no lease, and its network is not known: set an address with --ip")
	}
	return r, nil
}

// note is the comment of the lines: what the machine reports of itself, and where its address is from.
func note(a api.Adoption) string {
	var parts []string
	for _, part := range [][2]string{{"", a.Model()}, {"serial ", a.Serial}, {"UUID ", a.UUID}, {"", memory(a.MemoryMiB)}, {"address: ", a.From}} {
		if part[1] != "" {
			parts = append(parts, part[0]+part[1])
		}
	}
	return strings.Join(parts, ", ")
}

func memory(mib int) string {
	switch {
	case mib == 0:
		return ""
	case mib%1024 == 0:
		return fmt.Sprintf("%d GiB or more", mib/1024)
	}
	return fmt.Sprintf("%d MiB or more", mib)
}
