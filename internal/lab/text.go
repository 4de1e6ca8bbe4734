package lab

import (
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// DurationText writes a duration as people do in a lab file: 12h, not 12h0m0s.
func DurationText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Printable makes a text that others chose, such as the path of a request, fit for a terminal and a log, and keeps its columns: white space
// becomes a space, and what else is not printable, as control characters, bidirectional overrides and invalid UTF-8, becomes U+FFFD.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return utf8.RuneError
		}
		return r
	}, s)
}

// Tidy is Printable for what is quoted in a sentence, a page or a comment of YAML: without what is not printable, with single spaces, none of
// them at the ends, and at most so many bytes long.
func Tidy(s string, most int) string {
	s = strings.Join(strings.Fields(strings.ReplaceAll(Printable(s), string(utf8.RuneError), " ")), " ")
	return strings.TrimSpace(strings.ToValidUTF8(s[:min(len(s), most)], ""))
}

// Shortened returns s, or its first most bytes and "…".
func Shortened(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Named writes names, the first ones of many.
func Named(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// IsWeb reports whether a text is the URL of a file on a web server.
func IsWeb(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

// Redacted returns a URL without its password.
func Redacted(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "a URL"
	}
	return u.Redacted()
}

// TemplateReason returns what keeps a text from being a template in words of templates: text/template names the character that it did not
// expect.
func TemplateReason(reason string) string {
	if strings.Contains(reason, "bad character U+007D") || strings.Contains(reason, "unclosed action") {
		return "}} is missing: want {{…}}"
	}
	return reason
}
