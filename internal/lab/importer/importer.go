package importer

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Format is the configuration of one server.
type Format string

// The formats that Import reads.
const (
	Dnsmasq    Format = "dnsmasq"
	HAProxy    Format = "haproxy"
	Kea        Format = "kea"
	LibvirtNet Format = "libvirt-net"
	Libvirt    Format = "libvirt" // of ImportMachines: it is no format of files
	DHCPD      Format = "dhcpd"
)

type reader struct {
	format Format
	about  string
	read   func(d *draft, s *sources, names []string) error
}

// readers are the formats in the order of the documentation.
var readers = []reader{
	{Dnsmasq, "dnsmasq's configuration, with the files that it includes", readDnsmasq},
	{HAProxy, "HAProxy's configuration", readHAProxy},
	{DHCPD, "dhcpd.conf of ISC dhcpd", readDHCPD},
	{Kea, "Kea's configuration of DHCPv4, or the answer of config-get", readKea},
	{LibvirtNet, "networks of libvirt, as virsh net-dumpxml prints them", readLibvirtNet},
}

// Formats returns the formats that Import reads, each with a description.
func Formats() (all [][2]string) {
	for _, r := range readers {
		all = append(all, [2]string{string(r.format), r.about})
	}
	return all
}

// Options say what a configuration is read against.
type Options struct {
	// Root is the folder that absolute paths inside of the files begin at. Empty: the file system's root.
	Root string
	// Stdin is read, once, for the file - or /dev/stdin. Nil: there is none.
	Stdin io.Reader
	// Interface returns the interface of this machine whose network contains an address, and its own address there with the length of
	// the network. Nil, or an empty name: none.
	Interface func(netip.Addr) (name string, own netip.Prefix)
	// Subnet returns the IPv4 address of an interface of this machine, with the length of its network. Nil, or the zero prefix: none.
	Subnet func(name string) netip.Prefix
	// Lookup returns an address of a name, as this machine resolves it. Nil, or the zero address: none.
	Lookup func(name string) netip.Addr
	// Check returns what is wrong with a lab file of that name, with positions: an error of the loader or of a server's table. It is
	// required.
	Check func(name string, text []byte) lab.Problems
}

// A Result is a lab file and what it does not say.
type Result struct {
	Lab   []byte
	Notes []Note
}

// WeakensAccess returns the notes about statements that restrict access in the other server, and not in the lab. Each is a comment of
// Lab too, which begins with NOT ENFORCED.
func (r *Result) WeakensAccess() (all []Note) {
	for _, n := range r.Notes {
		if n.WeakensAccess {
			all = append(all, n)
		}
	}
	return all
}

// A Note is one statement that could not be carried as it is.
type Note struct {
	File      string `json:"file"`
	Line      int    `json:"line"`      // counts from 1
	Statement string `json:"statement"` // the statement, or its first words
	Text      string `json:"text"`      // what was left out or changed, and what to do
	// WeakensAccess says that the statement keeps somebody out, and that bootlab does not.
	WeakensAccess bool `json:"-"`
}

// String returns the note as "file:line: statement: text", behind NOT ENFORCED where it weakens access.
func (n Note) String() string {
	lead := ""
	if n.WeakensAccess {
		lead = notEnforced
	}
	return fmt.Sprintf("%s%s:%d: %s: %s", lead, n.File, n.Line, n.Statement, n.Text)
}

// Import reads files of one format, which are one configuration, and returns a lab file that loads. An error says which file cannot be
// read, or which line is not of this format.
func Import(format Format, files []string, o Options) (*Result, error) {
	return read(&sources{root: o.Root, stdin: o.Stdin}, format, files, o)
}

func read(s *sources, format Format, files []string, o Options) (*Result, error) {
	i := slices.IndexFunc(readers, func(r reader) bool { return r.format == format })
	if i < 0 {
		return nil, fmt.Errorf("%q is not a format: want one of %s", format, formatNames())
	}
	if o.Check == nil {
		panic("importer: Options.Check is nil")
	}
	d := newDraft(o)
	if err := readers[i].read(d, s, files); err != nil {
		return nil, err
	}
	return d.result(format, strings.Join(files, ", "))
}

// result returns the draft, which was made from something, as a lab file with notes.
func (d *draft) result(format Format, from string) (*Result, error) {
	text, err := d.settle("# Made by bootlab import " + string(format) + " from " + clip(from) + "\n")
	if err != nil {
		return nil, err
	}
	return &Result{Lab: text, Notes: d.notes}, nil
}

func formatNames() string {
	var names []string
	for _, r := range readers {
		names = append(names, string(r.format))
	}
	return strings.Join(names, ", ")
}
