package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/width"

	"github.com/bootlab/bootlab/internal/lab"
)

const (
	columnGap   = "  "
	narrowTable = 60 // columns of a terminal below which a table that does not fit becomes blocks
)

// writeTable writes aligned columns. On a terminal it fits them to its width: long texts wrap at their blanks, and no word, which may be a
// MAC, an address or a name, is broken. Where that is not possible, each row becomes lines of "key: value".
func writeTable(w io.Writer, header []string, rows [][]string) error {
	return writeLines(w, layTable(header, rows, widthOf(w)))
}

func writeLines(w io.Writer, rows [][]string) error {
	for _, lines := range rows {
		for _, line := range lines {
			if _, err := fmt.Fprintln(w, line); err != nil {
				return err
			}
		}
	}
	return nil
}

// layTable returns the lines of the header, which are none in blocks, and of each row, for a terminal of that width; 0: any.
func layTable(header []string, rows [][]string, width int) [][]string {
	all := append([][]string{header}, rows...)
	natural, least := make([]int, len(header)), make([]int, len(header))
	for _, row := range all {
		for i := range row {
			row[i] = cmp.Or(lab.Printable(row[i]), "-")
			if i >= len(header) {
				continue
			}
			natural[i] = max(natural[i], cells(row[i]))
			for word := range strings.FieldsSeq(row[i]) {
				least[i] = max(least[i], cells(word))
			}
		}
	}
	widths := natural
	if width > 0 {
		fits := false
		widths, fits = fitColumns(natural, least, width-len(columnGap)*(len(header)-1))
		if wraps := !slices.Equal(widths, natural); !fits || wraps && width < narrowTable {
			return layBlocks(header, rows, width)
		}
	}
	lines := make([][]string, len(all))
	for i, row := range all {
		lines[i] = layRow(row, widths)
	}
	return lines
}

// fitColumns returns widths of columns, whose widest is made narrower until their sum is as large as the space. False: their words do not fit.
func fitColumns(natural, least []int, space int) (widths []int, fits bool) {
	widths = slices.Clone(natural)
	sum := 0
	for _, w := range widths {
		sum += w
	}
	for ; sum > space; sum-- {
		widest := -1
		for i, w := range widths {
			if w > least[i] && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return widths, false
		}
		widths[widest]--
	}
	return widths, true
}

// layRow returns the lines of a row.
func layRow(row []string, widths []int) (lines []string) {
	columns, height := make([][]string, len(row)), 0
	for i, cell := range row {
		columns[i] = []string{cell}
		if i < len(widths) && cells(cell) > widths[i] {
			columns[i] = wrap(cell, widths[i])
		}
		height = max(height, len(columns[i]))
	}
	for l := range height {
		var b strings.Builder
		for i, column := range columns {
			cell := ""
			if l < len(column) {
				cell = column[l]
			}
			b.WriteString(cell)
			if i+1 < len(columns) && i < len(widths) {
				b.WriteString(strings.Repeat(" ", widths[i]-cells(cell)) + columnGap)
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}

// layBlocks returns the lines of rows as "key: value", with an empty line between two rows.
func layBlocks(header []string, rows [][]string, width int) [][]string {
	all := [][]string{nil}
	for n, row := range rows {
		var lines []string
		if n > 0 {
			lines = append(lines, "")
		}
		for i, cell := range row {
			key := ""
			if i < len(header) {
				key = strings.ToLower(header[i]) + ": "
			}
			parts := []string{key + cell}
			if cells(parts[0]) > width {
				parts = wrap(parts[0], max(width-len(columnGap), 1))
			}
			for j, part := range parts {
				if j > 0 {
					part = columnGap + part
				}
				lines = append(lines, part)
			}
		}
		all = append(all, lines)
	}
	return all
}

// cells returns how many columns of a terminal a text has: wide characters, such as Chinese ones, have two, and combining ones none.
func cells(s string) (n int) {
	for _, r := range s {
		n += cellsOf(r)
	}
	return n
}

func cellsOf(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// cut returns how many bytes of s have at most n cells.
func cut(s string, n int) int {
	for i, r := range s {
		if n -= cellsOf(r); n < 0 {
			return i
		}
	}
	return len(s)
}
