package lab

import "strings"

// Nearest returns the one of names that s probably means: the most similar one, or the only one that s abbreviates, as "iface"
// does "interface". It returns "" if there is none. Case does not count.
func Nearest(s string, names []string) string {
	s = strings.ToLower(s)
	best, bestDistance := "", max(2, len(s)/3)+1
	for _, name := range names {
		if d := distance(s, strings.ToLower(name), bestDistance); d < bestDistance {
			best, bestDistance = name, d
		}
	}
	if best != "" && bestDistance < len(s) && bestDistance <= len(best) { // BAR is not like A
		return best
	}
	best = ""
	for _, name := range names {
		if abbreviates(s, strings.ToLower(name)) {
			if best != "" {
				return ""
			}
			best = name
		}
	}
	return best
}

// abbreviates reports whether s has at least 4 letters, begins as name, and leaves out letters of name only.
func abbreviates(s, name string) bool {
	if len(s) < 4 || len(name) < len(s) || s[0] != name[0] {
		return false
	}
	for i := range len(name) {
		if s != "" && s[0] == name[i] {
			s = s[1:]
		}
	}
	return s == ""
}

// distance counts the insertions, deletions, replacements and swaps of neighbours between a and b (optimal string
// alignment); any result of limit or more means "far".
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit || len(a) > 64 || len(b) > 64 {
		return limit
	}
	var rows [3][66]int
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		row, up, up2 := &rows[i%3], &rows[(i+2)%3], &rows[(i+1)%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(up[j]+1, row[j-1]+1, up[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], up2[j-2]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}
