package plan

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteText writes the plan for people, and for `diff`: the same lab gives the same text.
func (p *Plan) WriteText(w io.Writer) error {
	out := &printer{Writer: bufio.NewWriter(w)}
	out.title(p)
	out.networks(p.Networks)
	out.reservations(p.Reservations)
	out.settings(p.Settings)
	out.records(p.Records)
	out.balancers(p.Balancers)
	for _, m := range p.Machines {
		out.machine(m)
	}
	return out.Flush()
}

// A printer writes sections. Errors stay in the bufio.Writer until Flush.
type printer struct {
	*bufio.Writer
}

func (w *printer) printf(format string, args ...any) { fmt.Fprintf(w, format, args...) }

func (w *printer) title(p *Plan) {
	if p.Host != "" {
		w.printf("host %s of lab %s\n", p.Host, p.Lab)
		return
	}
	w.printf("lab %s (%s)\n", p.Lab, cmp.Or(p.Domain, "no domain"))
}

// table writes one section of aligned columns, or nothing if it has no rows.
func (w *printer) table(title, header string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	w.printf("\n%s\n", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "  %s\n", strings.ReplaceAll(header, " ", "\t"))
	for _, row := range rows {
		fmt.Fprintf(t, "  %s\n", strings.TrimRight(strings.Join(row, "\t"), "\t "))
	}
	_ = t.Flush() // its errors are those of w
}

func dash(s string) string { return cmp.Or(s, "-") }

func (w *printer) networks(ns []Network) {
	var rows, pools [][]string
	for _, n := range ns {
		address, router := "unknown until its interface is up", "-"
		if n.Address.IsValid() {
			address = n.Address.String()
		}
		if n.Router.IsValid() {
			router = n.Router.String()
		}
		rows = append(rows, []string{n.Name, n.Subnet.String(), dash(n.Interface), address, router, string(n.DHCP)})
		for _, p := range n.Pools {
			pools = append(pools, []string{n.Name, p.Name, p.Range, cmp.Or(strings.Join(p.For, ", "), "anyone"), dash(p.Profile)})
		}
	}
	w.table("NETWORKS", "NAME SUBNET INTERFACE ADDRESS ROUTER DHCP", rows)
	w.table("POOLS", "NETWORK NAME RANGE FOR PROFILE", pools)
}

func (w *printer) reservations(rs []Reservation) {
	var rows [][]string
	for _, r := range rs {
		ip := r.IPFrom
		switch {
		case r.IP.IsValid() && ip != "":
			ip = r.IP.String() + " (" + ip + ")"
		case r.IP.IsValid():
			ip = r.IP.String()
		}
		rows = append(rows, []string{r.MAC.String(), ip, r.Host, r.FQDN, dash(r.Network), dash(r.Role), dash(r.Profile)})
	}
	w.table("RESERVATIONS", "MAC IP HOST FQDN NETWORK ROLE PROFILE", rows)
}

func (w *printer) settings(ss []Setting) {
	var rows [][]string
	for _, s := range ss {
		rows = append(rows, []string{s.Of, s.Name, s.Value})
	}
	w.table("SETTINGS", "OF NAME VALUE", rows)
}

func (w *printer) records(rs []Record) {
	var rows [][]string
	for _, r := range rs {
		rows = append(rows, []string{r.Name, r.Type, r.Data, "; " + r.Source})
	}
	w.table("DNS", "NAME TYPE DATA FROM", rows)
}

func (w *printer) balancers(bs []Balancer) {
	if len(bs) == 0 {
		return
	}
	w.printf("\nBALANCERS\n")
	for _, b := range bs {
		w.printf("  %s  %s  %s, %s, check %s\n", b.Name, dash(b.Listen), b.Mode, b.Balance, b.Check)
		if len(b.Names) > 0 {
			w.printf("    names %s\n", strings.Join(b.Names, ", "))
		}
		if len(b.Match) > 0 {
			w.printf("    for %s\n", strings.Join(b.Match, ", "))
		}
		for _, m := range b.Backends {
			more := ""
			if m.Weight > 0 {
				more += fmt.Sprintf("  weight %d", m.Weight)
			}
			if m.Limit > 0 {
				more += fmt.Sprintf("  max_connections %d", m.Limit)
			}
			if m.Backup {
				more += "  backup"
			}
			w.printf("    %s  %s%s\n", m.Addr, m.Name, more)
		}
	}
}

// configSection begins the heading of a config document.
const configSection = "CONFIG "

func (w *printer) machine(m Machine) {
	var rows [][]string
	for _, f := range m.Boot {
		file := f.File
		if f.Note != "" {
			file += " (" + f.Note + ")"
		}
		rows = append(rows, []string{f.Firmware, file})
	}
	w.table("BOOT "+m.Host, "FIRMWARE FILE", rows)
	w.block("SCRIPT "+m.Host, m.Script)
	w.block("REFUSED "+m.Host, m.Refused)
	w.block(configSection+m.Host, m.Config)
	if m.ConfigNote != "" {
		w.block(configSection+m.Host, m.ConfigNote)
	}
	w.block(strings.TrimSpace("DOMAIN "+m.Host+" "+m.Placement), m.DomainXML)
}

// block writes a section of verbatim, indented text, or nothing.
func (w *printer) block(title, text string) {
	if text == "" {
		return
	}
	w.printf("\n%s\n", title)
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		w.printf("  %s", line)
	}
}
