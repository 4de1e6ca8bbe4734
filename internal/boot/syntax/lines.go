package syntax

import (
	"slices"
	"strings"
)

// debconfTypes are the types of questions (debconf-devel(7)), and seen, which marks one.
const debconfTypes = "string boolean select multiselect note text password title error seen"

// preseed checks what debconf-set-selections reads: owner, question, type and value, in lines that a backslash continues. It
// skips a line that it cannot read, and the installer then stops and asks.
func preseed(text []byte) *Error {
	types := strings.Fields(debconfTypes)
	inside, comment := false, false // the line before continues in this one, and is a comment
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimRight(line, "\r")
		fields := strings.Fields(line)
		remark := strings.HasPrefix(strings.TrimLeft(line, " \t"), "#")
		switch {
		case inside && comment && !remark && len(fields) > 0:
			return errorAt(i+1, 1, "not a preseed: the comment before ends in a backslash and takes this line with it")
		case inside || remark || len(fields) == 0:
		case len(fields) < 3:
			return errorAt(i+1, 1, "not a preseed: want owner, question, type and value, such as d-i debian-installer/locale string en_US")
		case !slices.Contains(types, fields[2]):
			return errorAt(i+1, strings.Index(line, fields[2])+1, "not a preseed: the third word is not a question type: want one of %s", debconfTypes)
		case fields[2] == "boolean" && len(fields) > 3 && fields[3] != "true" && fields[3] != "false":
			return errorAt(i+1, 1, "not a preseed: the question is boolean: want true or false")
		}
		comment = remark || inside && comment
		inside = strings.HasSuffix(line, "\\")
	}
	return nil
}

// kickstartSections are closed by %end (anaconda's kickstart documentation). %include and %ksappend are lines of their own.
var kickstartSections = []string{"%packages", "%pre", "%post", "%pre-install", "%onerror", "%traceback", "%addon", "%anaconda", "%certificate"}

// kickstart checks that every section is known and closed: anaconda stops at the first that is not.
func kickstart(text []byte) *Error {
	open, at := "", 0
	for i, line := range strings.Split(string(text), "\n") {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case name == "%end" && open == "":
			return errorAt(i+1, 1, "not a kickstart: %%end closes no section")
		case name == "%end":
			open = ""
		case open != "" && slices.Contains(kickstartSections, name):
			return errorAt(at, 1, "not a kickstart: %s is not closed before %s of line %d: want %%end", open, name, i+1)
		case open != "" || !strings.HasPrefix(name, "%") || name == "%include" || name == "%ksappend":
		case !slices.Contains(kickstartSections, name):
			return errorAt(i+1, 1, "not a kickstart: there is no such section: want one of %s", strings.Join(kickstartSections, " "))
		default:
			open, at = name, i+1
		}
	}
	if open != "" {
		return errorAt(at, 1, "not a kickstart: %s is not closed: want %%end", open)
	}
	return nil
}
