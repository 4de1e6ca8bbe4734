package leasefile

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/api"
)

// columns are the columns of CSV, named as the keys of JSON.
var columns = []string{"ip", "mac", "hostname", "state", "since", "expires", "client_id", "vendor_class", "relay_port", "host", "network", "pool"}

func writeCSV(w io.Writer, leases []api.Lease) error {
	out := csv.NewWriter(w)
	if err := out.Write(columns); err != nil {
		return err
	}
	for _, l := range leases {
		row := []string{l.IP.String(), l.MAC.String(), l.Name, string(l.State), timeText(l.Since), endText(l), l.ClientID, l.VendorClass, l.RelayPort,
			l.Host, l.Network, l.Pool}
		for i := range row {
			row[i] = guard(row[i])
		}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// never is the end of a lease that does not end.
const never = "never"

func endText(l api.Lease) string {
	if l.Never {
		return never
	}
	return timeText(l.Expires)
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// formula are the first characters that make a spreadsheet evaluate a cell. Machines choose their vendor class.
const formula = "=+-@'\t\r"

// guard marks a cell as text, as spreadsheets do.
func guard(cell string) string {
	if cell != "" && strings.ContainsRune(formula, rune(cell[0])) {
		return "'" + cell
	}
	return cell
}

func unguard(cell string) string {
	if len(cell) > 1 && cell[0] == '\'' && strings.ContainsRune(formula, rune(cell[1])) {
		return cell[1:]
	}
	return cell
}

// A rows reads a table with a header.
type rows struct {
	read   func() (row []string, line int, err error) // io.EOF after the last
	header []string
	line   int
	row    []string
}

// separators are what stands between columns, depending on the spreadsheet and its language.
const separators = ",;\t"

// separatorOf returns the separator of CSV with columns of leases, or 0.
func separatorOf(header string) rune {
	for _, separator := range separators {
		r := csv.NewReader(strings.NewReader(header))
		r.Comma = separator
		names, err := r.Read()
		if names = columnNames(names); err == nil && slices.Contains(names, "ip") && slices.Contains(names, "mac") {
			return separator
		}
	}
	return 0
}

// columnNames returns names as this package writes them: people write IP and MAC, too.
func columnNames(header []string) []string {
	names := slices.Clone(header)
	for i := range names {
		names[i] = strings.ToLower(strings.TrimSpace(names[i]))
	}
	return names
}

// csvRows reads CSV of RFC 4180, or as spreadsheets write it. Rows without a value are none.
func csvRows(data []byte) func() ([]string, int, error) {
	r := csv.NewReader(bytes.NewReader(data))
	if separator := separatorOf(firstLine(data)); separator != 0 {
		r.Comma = separator
	}
	r.FieldsPerRecord = -1
	return func() ([]string, int, error) {
		row, err := r.Read()
		for err == nil && strings.Join(row, "") == "" {
			row, err = r.Read()
		}
		if err != nil && !errors.Is(err, io.EOF) {
			err = fmt.Errorf("not CSV: %w", err) // which names the line
		}
		if err != nil {
			return nil, 0, err
		}
		line, _ := r.FieldPos(0)
		return row, line, nil
	}
}

// newRows reads the header, which must have some columns.
func newRows(read func() ([]string, int, error), want ...string) (*rows, error) {
	r := &rows{read: read}
	header, _, err := read()
	if err != nil {
		return nil, fmt.Errorf("line 1: want the names of columns, %s: %w", strings.Join(want, ","), err)
	}
	r.header = columnNames(header)
	for _, w := range want {
		if !slices.Contains(r.header, w) {
			return nil, fmt.Errorf("line 1: there is no column %s", w)
		}
	}
	return r, nil
}

// next reads a row. It returns io.EOF after the last.
func (r *rows) next() error {
	var err error
	if r.row, r.line, err = r.read(); err != nil {
		return err
	}
	if len(r.row) > len(r.header) {
		return fmt.Errorf("line %d: %d columns, more than the header has", r.line, len(r.row))
	}
	return nil
}

// col returns a column of the row, "" where the row or the file does not have it.
func (r *rows) col(name string) string {
	i := slices.Index(r.header, name)
	if i < 0 || i >= len(r.row) {
		return ""
	}
	return r.row[i]
}

func parseCSV(data []byte) (*File, error) {
	r, err := newRows(csvRows(data), "ip", "mac", "expires")
	if err != nil {
		return nil, err
	}
	f := &File{}
	for {
		err := r.next()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return nil, err
		}
		l, notOurs, err := csvLease(r)
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", r.line, err)
		case notOurs != nil:
			f.Skipped = append(f.Skipped, *notOurs)
		default:
			f.Leases = append(f.Leases, l)
		}
	}
}

func csvLease(r *rows) (l api.Lease, notOurs *api.SkippedLease, err error) {
	cell := func(name string) string { return unguard(r.col(name)) }
	l = api.Lease{
		Name: cell("hostname"), State: api.LeaseState(cell("state")), ClientID: cell("client_id"), VendorClass: cell("vendor_class"), RelayPort: cell("relay_port"),
		Host: cell("host"), Network: cell("network"), Pool: cell("pool"),
	}
	if l.IP, l.MAC, notOurs, err = endpoints(cell("ip"), cell("mac")); err != nil || notOurs != nil {
		return l, notOurs, err
	}
	for name, t := range map[string]*time.Time{"since": &l.Since, "expires": &l.Expires} {
		text := cell(name)
		switch {
		case text == "":
			continue
		case text == never && name == "expires":
			l.Never = true
			continue
		}
		if *t, err = time.Parse(time.RFC3339, text); err != nil {
			return l, nil, fmt.Errorf("%s %.60q is not a time such as 2026-11-22T15:04:05Z", name, text)
		}
	}
	return l, nil, normalize(&l, "a time such as 2026-11-22T15:04:05Z, or never")
}
