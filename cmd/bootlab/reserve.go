package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// A reservation is the host that a lease becomes in the lab file. It needs no network: that is the one whose subnet contains
// the address.
type reservation struct {
	Host    string     `json:"host"`
	MAC     lab.MAC    `json:"mac,omitzero"`        // zero: the host is in the lab file already
	More    []lab.MAC  `json:"more_macs,omitempty"` // of its other NICs
	IP      netip.Addr `json:"ip"`
	Profile string     `json:"profile,omitempty"`
	Note    string     `json:"note,omitempty"` // for a comment
}

func (r reservation) yaml() string {
	text := "  " + r.Host + ":"
	if r.Note != "" {
		text += " # " + r.Note
	}
	text += "\n"
	switch {
	case len(r.More) > 0:
		macs := r.MAC.String()
		for _, m := range r.More {
			macs += ", " + m.String()
		}
		text += "    mac: [" + macs + "]\n"
	case !r.MAC.IsZero():
		text += "    mac: " + r.MAC.String() + "\n"
	}
	text += "    ip: " + r.IP.String() + "\n"
	if r.Profile != "" {
		text += "    profile: " + r.Profile + "\n"
	}
	return text
}

// reserve prints lines for the lab file. If the lab file is readable, a daemon would not refuse the lab because of them.
func reserve(cmd *cobra.Command, o *options, words []string) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	leases, err := pickLeases(cmd.Context(), c, api.LeaseFilter{States: api.LeaseStates()}, words)
	if err != nil {
		return err
	}
	t, err := newTrial(cmd.Context(), c, o.lab)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range leases {
		errs = append(errs, t.add(l))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return o.print(cmd, append(t.news, t.known...), func() error { return t.print(cmd) })
}

// A trial collects reservations that are valid in the lab.
type trial struct {
	lab   string          // path of the lab file; empty: it is not readable or not valid
	now   *lab.Lab        // without reservations; nil: see lab
	wrong lab.Problems    // what a daemon refuses of now
	parts lab.Problems    // of news, in the same words: machines that it would not boot
	taken map[string]bool // names of hosts
	news  []reservation   // new hosts
	known []reservation   // hosts of the lab without a reserved address
}

func newTrial(ctx context.Context, c *api.Client, path string) (*trial, error) {
	hosts, err := c.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	t := &trial{lab: path, taken: map[string]bool{}}
	for _, h := range hosts {
		t.taken[h.Name] = true
	}
	if t.now, err = t.load(""); err != nil {
		t.lab = ""
		return t, nil
	}
	whole, parts := refusals(t.now, nil)
	t.wrong = append(whole, parts...)
	return t, nil
}

func (t *trial) load(text string) (*lab.Lab, error) {
	return load.LabWith(t.lab, triedLines, []byte(text), load.Options{InterfaceAddr: interfaces.AddrIn})
}

func (t *trial) add(l api.Lease) error {
	switch {
	case l.MAC.IsZero() || l.Status() == api.LeaseDeclined || l.Status() == api.LeaseConflict:
		return fmt.Errorf("%s has no known client (%s), so it cannot be reserved", l.IP, l.Status())
	case l.Reserved:
		return fmt.Errorf("%s is reserved already, for %s", l.IP, l.Host)
	case l.Network == "":
		return fmt.Errorf("%s is in no network of the lab", l.IP)
	case l.Host != "":
		t.known = append(t.known, reservation{Host: l.Host, IP: l.IP})
		return nil
	}
	if err := t.take(reservation{MAC: l.MAC, IP: l.IP}, []string{strings.ToLower(l.Name), l.MAC.Hyphens()}); err != nil {
		return fmt.Errorf("reserve %s for %s: %w", l.IP, l.MAC, err)
	}
	return nil
}

// take makes r a host under the first name that is valid in the lab.
func (t *trial) take(r reservation, names []string) error {
	err := errors.New("other hosts already use its names")
	for _, name := range names {
		if name == "" || t.lab == "" && t.taken[name] { // with a lab file, its error says where the name is used
			continue
		}
		r.Host = name
		if err = unplaced(t.try(r)); err == nil {
			t.taken[name] = true
			t.news = append(t.news, r)
			return nil
		}
	}
	return err
}

// triedLines is where errors about lines that are tried are placed: no file has them yet.
const triedLines = "tried lines"

// unplaced takes from errors about lines that are tried their place.
func unplaced(err error) error {
	problems := problemsOf(err)
	if !slices.ContainsFunc(problems, func(p *lab.Problem) bool { return p.Pos.File == triedLines }) {
		return err
	}
	texts := []string{}
	for _, p := range problems {
		if p.Pos.File == triedLines {
			texts = append(texts, p.Message)
		} else {
			texts = append(texts, p.Error())
		}
	}
	return errors.New(strings.Join(texts, "; "))
}

// try checks a reservation, with those before it, against the lab file. Without one, it checks the name only.
func (t *trial) try(r reservation) error {
	if t.lab != "" {
		if h := t.now.HostByIP(r.IP); h != nil {
			return fmt.Errorf("%s is the address of host %s: want another one", r.IP, h.Name)
		}
		if t.now.Host(r.Host) != nil {
			return fmt.Errorf("the lab has a host %s already: want another name", r.Host)
		}
		whole, parts := refusals(t.load(reservationsText(append(slices.Clone(t.news), r))))
		t.parts = slices.DeleteFunc(parts, t.wrong.Has)
		return slices.DeleteFunc(whole, t.wrong.Has).Err()
	}
	text := "version: 1\ndomain: lab.example\nnetworks: {n: {subnet: " + netip.PrefixFrom(r.IP, 24).Masked().String() + ", dhcp: off}}\n"
	if r.Profile != "" {
		text += "profiles: {" + r.Profile + ": {kernel: k}}\n"
	}
	_, err := load.Parse(triedLines, []byte(text+reservationsText([]reservation{r})), load.Options{})
	return err
}

func reservationsText(rs []reservation) string {
	text := "hosts:\n"
	for _, r := range rs {
		text += r.yaml()
	}
	return text
}

func (t *trial) print(cmd *cobra.Command) error {
	if len(t.parts) > 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: with these lines alone,", unplaced(t.parts.Err()))
	}
	var b strings.Builder
	if len(t.news) > 0 {
		b.WriteString("# Add to hosts in the lab file, or save as a file in the lab's folder.\n" + reservationsText(t.news))
	}
	if len(t.known) > 0 {
		b.WriteString("# These hosts are in the lab file: add their ip.\n" + reservationsText(t.known))
	}
	_, err := fmt.Fprint(cmd.OutOrStdout(), b.String())
	return err
}
