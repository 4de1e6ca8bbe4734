package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

func leasesCommand(o *options) *cobra.Command {
	var f leaseFlags
	cmd := &cobra.Command{
		Use:   "leases",
		Short: "Show leases, release, export and import them, turn them into reservations",
		Args:  subcommand,
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, _ []string) ([]api.Lease, error) {
			filter, err := f.filter()
			if err != nil {
				return nil, err
			}
			leases, err := c.FindLeases(cmd.Context(), filter)
			if err == nil && len(leases) == 0 {
				err = f.known(cmd.Context(), c)
			}
			return leases, err
		}, func(cmd *cobra.Command, leases []api.Lease) error { return leasesText(cmd, leases, f.wide) }),
	}
	f.flags(cmd)
	cmd.AddCommand(
		&cobra.Command{
			Use:   "release ADDR|MAC|NAME...",
			Short: "Release leases, as if their clients had sent DHCPRELEASE",
			Args:  cobra.MinimumNArgs(1),
			RunE:  func(cmd *cobra.Command, args []string) error { return release(cmd, o, args) },
		},
		&cobra.Command{
			Use:   "reserve ADDR|MAC|NAME...",
			Short: "Print lab-file lines that turn leases into reservations; nothing is written",
			Args:  cobra.MinimumNArgs(1),
			RunE:  func(cmd *cobra.Command, args []string) error { return reserve(cmd, o, args) },
		},
		poolsCommand(o),
		exportCommand(o),
		importCommand(o),
	)
	return cmd
}

// leaseFlags say which leases are shown, and how.
type leaseFlags struct {
	network, pool, host string
	macs, states        []string
	expiring            time.Duration
	wide                bool
}

func (f *leaseFlags) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.network, "network", "", "only leases of this network")
	fs.StringVar(&f.pool, "pool", "", "only leases of this pool")
	fs.StringVar(&f.host, "host", "", "only leases of this host, or of clients that send this host name")
	fs.StringSliceVar(&f.macs, "mac", nil, "only these `MACs`: complete, with * (52:54:00:*:*:*), a prefix (52:54:00:00:00:00/20), or the first bytes (52:54:00)")
	fs.StringSliceVar(&f.states, "state", nil, "only these `states`: active, expired, released, declined, conflict, offered, or all (default: those that hold an address)")
	fs.DurationVar(&f.expiring, "expiring", 0, "only active leases that end within this `time`, such as 1h")
	fs.BoolVar(&f.wide, "wide", false, "also show vendor class, relay port and last renewal")
}

// known returns an error for a flag whose name is not in the lab, nor that of a client whose lease has ended: then it is no wonder that there
// are no leases.
func (f *leaseFlags) known(ctx context.Context, c *api.Client) error {
	if f.network == "" && f.pool == "" && f.host == "" {
		return nil
	}
	pools, err := c.Pools(ctx)
	if err != nil {
		return err
	}
	all, err := c.Hosts(ctx)
	if err != nil {
		return err
	}
	var networks, poolNames, hosts []string
	for _, p := range pools {
		networks, poolNames = append(networks, p.Network), append(poolNames, p.Name)
	}
	for _, h := range all {
		networks, hosts = append(networks, h.Network), append(hosts, h.Name)
		for _, nic := range h.NICs {
			networks = append(networks, nic.Network)
		}
	}
	if f.host != "" && len(f.states) == 0 {
		ended, err := c.FindLeases(ctx, api.LeaseFilter{Host: f.host, States: api.LeaseStates()})
		if err != nil {
			return err
		}
		if len(ended) > 0 {
			hosts = append(hosts, f.host)
		}
	}
	for _, flag := range []struct {
		value, what string
		names       []string
	}{{f.network, "network with pools or hosts", networks}, {f.pool, "pool", poolNames}, {f.host, "host of the lab, and no client sends this name", hosts}} {
		if flag.value == "" || slices.ContainsFunc(flag.names, func(name string) bool { return strings.EqualFold(name, flag.value) }) {
			continue
		}
		if near := lab.Nearest(flag.value, flag.names); near != "" {
			return fmt.Errorf("%q is no %s: did you mean %s?", flag.value, flag.what, near)
		}
		return fmt.Errorf("%q is no %s", flag.value, flag.what)
	}
	return nil
}

func (f *leaseFlags) filter() (api.LeaseFilter, error) {
	v := url.Values{"mac": f.macs, "state": f.states}
	for key, text := range map[string]string{"network": f.network, "pool": f.pool, "host": f.host} {
		v.Set(key, text)
	}
	if f.expiring != 0 {
		v.Set("expiring", f.expiring.String())
	}
	return api.ParseLeaseFilter(v)
}

func leasesText(cmd *cobra.Command, leases []api.Lease, wide bool) error {
	header := "IP MAC NAME NETWORK POOL STATE EXPIRES"
	if wide {
		header += " SINCE VENDOR RELAY-PORT"
	}
	var rows [][]string
	for _, l := range leases {
		row := []string{l.IP.String(), macText(l.MAC), leaseName(l), l.Network, cmp.Or(l.Pool, "reserved"), string(l.Status()), expiry(l.Expires)}
		if wide {
			row = append(row, localTime(l.Since), l.VendorClass, l.RelayPort)
		}
		rows = append(rows, row)
	}
	return list(cmd, "no leases", header, rows)
}

// leaseName is the host of the lab or, in parentheses, the name that an unknown client sent.
func leaseName(l api.Lease) string {
	if l.NameConflict {
		return "(" + l.Name + ", conflict)"
	}
	if l.Host == "" && l.Name != "" {
		return "(" + l.Name + ")"
	}
	return l.Host
}

func macText(m lab.MAC) string {
	if m.IsZero() {
		return ""
	}
	return m.String()
}

func expiry(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	if left := time.Until(t); left > 0 {
		return "in " + left.Round(time.Second).String()
	}
	return "expired"
}

// pickLease returns the one lease that a person means by an address, a MAC, the name of a host or what a client calls
// itself. A host of the lab goes before unknown clients that send its name.
func pickLease(leases []api.Lease, what string) (api.Lease, error) {
	addr, notAddr := netip.ParseAddr(what)
	mac, notMAC := lab.ParseMAC(what)
	var found, byHostname []api.Lease
	for _, l := range leases {
		switch {
		case notAddr == nil && l.IP == addr.Unmap(), notMAC == nil && l.MAC == mac, strings.EqualFold(l.Host, what):
			found = append(found, l)
		case notAddr != nil && notMAC != nil && l.Host == "" && strings.EqualFold(l.Name, what):
			byHostname = append(byHostname, l)
		}
	}
	if len(found) == 0 {
		found = byHostname
	}
	switch len(found) {
	case 0:
		return api.Lease{}, fmt.Errorf("no lease of %q; bootlab leases lists them", what)
	case 1:
		return found[0], nil
	}
	var addrs []string
	for _, l := range found {
		addrs = append(addrs, l.IP.String())
	}
	return api.Lease{}, fmt.Errorf("%q has %d leases: name one of %s", what, len(found), strings.Join(addrs, ", "))
}

// pickLeases returns what all the words mean, or what is wrong with any of them: nothing is done by halves.
func pickLeases(ctx context.Context, c *api.Client, f api.LeaseFilter, words []string) ([]api.Lease, error) {
	all, err := c.FindLeases(ctx, f)
	if err != nil {
		return nil, err
	}
	var picked []api.Lease
	var errs []error
	for _, what := range words {
		l, err := pickLease(all, what)
		picked, errs = append(picked, l), append(errs, err)
	}
	return picked, errors.Join(errs...)
}

func release(cmd *cobra.Command, o *options, words []string) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	leases, err := pickLeases(cmd.Context(), c, api.LeaseFilter{}, words)
	if err != nil {
		return err
	}
	addrs := make([]netip.Addr, len(leases))
	for i, l := range leases {
		addrs[i] = l.IP
	}
	return oneByOne(cmd, o, addrs, func(addr netip.Addr) (api.GivenBack, error) {
		back, err := c.ReleaseLease(cmd.Context(), addr)
		if err != nil {
			return back, fmt.Errorf("release %s: %w", addr, err)
		}
		return back, nil
	}, releasedText)
}

func releasedText(cmd *cobra.Command, back []api.GivenBack) error {
	for _, g := range back {
		who := cmp.Or(g.Lease.Host, g.Lease.Name, "a client without a name")
		if !g.Lease.MAC.IsZero() {
			who += " (" + g.Lease.MAC.String() + ")"
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "lease of %s for %s ended: %s\n", who, g.Lease.IP, g.Message); err != nil {
			return err
		}
	}
	return nil
}

func poolsCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "pools",
		Short: "Show how the addresses of each pool are used: leased, offered, in quarantine, free",
		Args:  cobra.NoArgs,
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, _ []string) ([]api.Pool, error) { return c.Pools(cmd.Context()) },
			func(cmd *cobra.Command, pools []api.Pool) error {
				var rows [][]string
				for _, p := range pools {
					row := []string{p.Network, p.Name, p.Range}
					for _, n := range []int{p.Size, p.Leased, p.Offered, p.Quarantined, p.Free} {
						row = append(row, strconv.Itoa(n))
					}
					rows = append(rows, row)
				}
				return list(cmd, "no pools", "NETWORK POOL RANGE ADDRESSES LEASED OFFERED QUARANTINED FREE", rows)
			}),
	}
}
