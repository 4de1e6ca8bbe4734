package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/api/leasefile"
)

func exportCommand(o *options) *cobra.Command {
	format := string(leasefile.CSV)
	var subnetIDs []string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print active leases as a file: CSV, JSON, or the lease file of Kea or dnsmasq",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.json && !cmd.Flags().Changed("format") {
				format = string(leasefile.JSON)
			}
			return exportLeases(cmd, o, leasefile.Format(format), subnetIDs)
		},
	}
	cmd.Flags().Var(&choice{&format, leaseFormats()}, "format", either(leaseFormats()))
	cmd.Flags().StringSliceVar(&subnetIDs, "subnet-id", nil, "`network=id` of Kea's configuration, once for each network with leases (default: 1 if there is one network)")
	return cmd
}

func leaseFormats() (words []string) {
	for _, f := range leasefile.Formats() {
		words = append(words, string(f))
	}
	return words
}

func exportLeases(cmd *cobra.Command, o *options, format leasefile.Format, subnetIDs []string) error {
	ids, err := parseSubnetIDs(subnetIDs)
	if err != nil {
		return err
	}
	c, err := o.client()
	if err != nil {
		return err
	}
	leases, err := c.FindLeases(cmd.Context(), api.LeaseFilter{States: []api.LeaseState{api.LeaseActive}})
	if err != nil {
		return err
	}
	if err := knownNetworks(cmd, c, ids, leases); err != nil {
		return err
	}
	if len(ids) == 0 {
		ids = onlyNetwork(leases)
	}
	for i, l := range leases {
		if l.Expires.Unix() >= never {
			leases[i].Expires, leases[i].Never = time.Time{}, true
		}
		if format == leasefile.Kea && ids[l.Network] == 0 {
			return fmt.Errorf("network %s has no subnet id: name the ids of Kea's configuration, --subnet-id %s=1", l.Network, l.Network)
		}
	}
	return leasefile.Write(cmd.OutOrStdout(), format, leases, leasefile.Options{SubnetIDs: ids})
}

// never is the end of a lease that does not end.
const never = 1<<32 - 1

func parseSubnetIDs(texts []string) (map[string]int, error) {
	ids := map[string]int{}
	for _, t := range texts {
		network, text, _ := strings.Cut(t, "=")
		id, err := strconv.Atoi(text)
		if err != nil || id < 1 || network == "" {
			return nil, fmt.Errorf("--subnet-id %q: want network=id, such as lan=1", t)
		}
		ids[network] = id
	}
	return ids, nil
}

// knownNetworks returns an error if an id is of no network of the daemon: a misspelt one would be left out without a word.
func knownNetworks(cmd *cobra.Command, c *api.Client, ids map[string]int, leases []api.Lease) error {
	if len(ids) == 0 {
		return nil
	}
	hosts, err := c.Hosts(cmd.Context())
	if err != nil {
		return err
	}
	pools, err := c.Pools(cmd.Context())
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, l := range leases {
		known[l.Network] = true
	}
	for _, h := range hosts {
		known[h.Network] = true
	}
	for _, p := range pools {
		known[p.Network] = true
	}
	delete(known, "")
	for _, network := range slices.Sorted(maps.Keys(ids)) {
		if !known[network] {
			return fmt.Errorf("--subnet-id %s=%d: no network %s has a lease, a host or a pool; networks: %s", network, ids[network], network, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	return nil
}

// onlyNetwork gives the id 1 to the network of all leases, if they are of one.
func onlyNetwork(leases []api.Lease) map[string]int {
	ids := map[string]int{}
	for _, l := range leases {
		ids[l.Network] = 1
	}
	if len(ids) > 1 {
		return nil
	}
	return ids
}

func importCommand(o *options) *cobra.Command {
	var format string
	var replace, check bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Take over the leases of another DHCP server from a file of Kea or dnsmasq, CSV or JSON (- for standard input)",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			over, rehearse := api.KeepLeases, api.DoImport
			if replace {
				over = api.ReplaceLeases
			}
			if check {
				rehearse = api.CheckImport
			}
			return importLeases(cmd, o, args[0], leasefile.Format(format), over, rehearse)
		},
	}
	cmd.Flags().Var(&choice{&format, leaseFormats()}, "format", either(leaseFormats())+" (default: detected)")
	cmd.Flags().BoolVar(&replace, "replace", false, "end leases that conflict with those of the file (default: they stay, and the lease of the file is skipped)")
	cmd.Flags().BoolVar(&check, "check", false, "only show what an import would do")
	return cmd
}

func importLeases(cmd *cobra.Command, o *options, path string, format leasefile.Format, over api.Overwrite, rehearse api.Rehearse) error {
	data, err := readLeaseFile(cmd, path)
	if err != nil {
		return err
	}
	if format == "" {
		if format, err = leasefile.Detect(data); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	f, err := leasefile.Parse(data, format)
	if err != nil {
		return fmt.Errorf("%s: %w; nothing was imported", path, err)
	}
	c, err := o.client()
	if err != nil {
		return err
	}
	done, err := c.ImportLeases(cmd.Context(), f.Leases, over, rehearse)
	if err != nil {
		return err
	}
	done.Skipped = append(f.Skipped, done.Skipped...)
	slices.SortStableFunc(done.Skipped, func(x, y api.SkippedLease) int { return x.IP.Compare(y.IP) })
	if err := o.print(cmd, done, func() error { return importedText(cmd, done) }); err != nil {
		return err
	}
	return importFailed(done)
}

// importFailed returns an error if a lease could not be stored, or if none was imported or is leased here already, as after a first import, and
// not all are over: the file is probably of other networks.
func importFailed(d api.LeaseImport) error {
	has := func(kinds ...api.SkipKind) bool {
		return slices.ContainsFunc(d.Skipped, func(s api.SkippedLease) bool { return slices.Contains(kinds, s.Kind) })
	}
	switch {
	case has(api.SkipFailed):
		return errors.New("a lease was not stored: bootlab status says what is wrong with the disk")
	case d.Imported == 0 && !has(api.SkipLeased) && has(api.SkipOutside, api.SkipNoPool, api.SkipReserved, api.SkipNoEthernet):
		return errors.New("no lease was imported: the table has the reasons")
	}
	return nil
}

func readLeaseFile(cmd *cobra.Command, path string) ([]byte, error) {
	in := cmd.InOrStdin()
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, leasefile.MaxSize+1))
	if err == nil && len(data) > leasefile.MaxSize {
		err = errors.New("it is larger than 256 MiB")
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}

func importedText(cmd *cobra.Command, d api.LeaseImport) error {
	counts := map[api.SkipKind]int{}
	var rows [][]string
	for _, s := range d.Skipped {
		counts[s.Kind]++
		rows = append(rows, []string{s.IP.String(), macText(s.MAC), s.Name, string(s.Kind), s.Reason})
	}
	if len(rows) > 0 {
		if err := table(cmd, "IP MAC NAME SKIPPED REASON", rows); err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout())
	}
	verb := "imported"
	if d.Checked {
		verb = "would import"
	}
	text := verb + " " + counted(d.Imported, "lease", "leases")
	if d.Replaced > 0 {
		text += fmt.Sprintf(" (%d of them in place of other leases)", d.Replaced)
	}
	if n := len(d.Skipped); n > 0 {
		text += fmt.Sprintf(", skipped %d: %s", n, countsText(counts))
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}

// countsText lists the reasons, the most frequent first.
func countsText(counts map[api.SkipKind]int) string {
	kinds := make([]api.SkipKind, 0, len(counts))
	for k := range counts {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(x, y api.SkipKind) int { return cmp.Or(counts[y]-counts[x], cmp.Compare(x, y)) })
	var texts []string
	for _, k := range kinds {
		texts = append(texts, fmt.Sprintf("%d %s", counts[k], k))
	}
	return strings.Join(texts, ", ")
}
