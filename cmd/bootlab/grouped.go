package main

import (
	"errors"
	"slices"
	"strings"
)

// A sentence is about one host.
type sentence struct{ host, text string }

// A grouped sentence is about one host or more. In the text of more, HOST stands for the name.
type grouped struct {
	hosts []string
	text  string
}

// byText joins sentences that say the same of several hosts, in the order of the first of each.
func byText(all []sentence) (groups []grouped) {
	var first []sentence // of each group
	for _, s := range all {
		i := slices.IndexFunc(first, func(f sentence) bool { return same(f, s) })
		if i < 0 {
			first, groups = append(first, s), append(groups, grouped{[]string{s.host}, s.text})
			continue
		}
		if groups[i].hosts = append(groups[i].hosts, s.host); len(groups[i].hosts) == 2 {
			groups[i].text = withoutHost(first[i], s)
		}
	}
	return groups
}

// same reports whether two sentences differ only in the names of their hosts. A name may be a word of the sentence, such as a.
func same(a, b sentence) bool {
	as, bs := strings.Split(a.text, " "), strings.Split(b.text, " ")
	return a.host == b.host && a.text == b.text || a.host != b.host && slices.EqualFunc(as, bs, func(x, y string) bool {
		return x == y || strings.ReplaceAll(x, a.host, "HOST") == strings.ReplaceAll(y, b.host, "HOST")
	})
}

// withoutHost returns the text of two sentences that are the same, with HOST for the names.
func withoutHost(a, b sentence) string {
	as, bs := strings.Split(a.text, " "), strings.Split(b.text, " ")
	for i := range as {
		if as[i] != bs[i] {
			as[i] = strings.ReplaceAll(as[i], a.host, "HOST")
		}
	}
	return strings.Join(as, " ")
}

// A hostError is what failed for one host.
type hostError struct {
	host string
	err  error
}

// joinErrors joins errors in their order. What is wrong with several hosts is said once. It is nil if there are none.
func joinErrors(all []hostError) error {
	sentences := make([]sentence, 0, len(all))
	for _, e := range all {
		sentences = append(sentences, sentence{e.host, e.err.Error()})
	}
	var joined []error
	for _, s := range byText(sentences) {
		joined = append(joined, groupedError{s, all})
	}
	return errors.Join(joined...)
}

// A groupedError is one for one host or more. It wraps those of all.
type groupedError struct {
	grouped
	all []hostError
}

// Error names the hosts where the text names the first.
func (e groupedError) Error() string {
	if len(e.hosts) == 1 {
		return e.text
	}
	names := strings.Join(e.hosts, ", ")
	switch {
	case strings.HasPrefix(e.text, "HOST is "):
		return strings.Replace(e.text, "HOST", "each of "+names, 1)
	case strings.Contains(e.text, `"HOST"`):
		return strings.Replace(e.text, `"HOST"`, `"`+strings.Join(e.hosts, `", "`)+`"`, 1)
	case strings.Contains(e.text, "HOST"):
		return strings.Replace(e.text, "HOST", names, 1)
	}
	return names + ": " + e.text
}

// Unwrap returns the errors of its hosts.
func (e groupedError) Unwrap() (errs []error) {
	for _, one := range e.all {
		if slices.Contains(e.hosts, one.host) {
			errs = append(errs, one.err)
		}
	}
	return errs
}
