package load

import (
	"fmt"
	"strings"
)

// didYouMean returns `: did you mean "X"?` for the nearest of names, or nothing if none is near.
func didYouMean(s string, names []string) string {
	best, bestDistance := "", max(2, len(s)/3)+1
	for _, name := range names {
		if d := distance(strings.ToLower(s), name, bestDistance); d < bestDistance {
			best, bestDistance = name, d
		}
	}
	if best == "" || bestDistance >= len(s) {
		return ""
	}
	return fmt.Sprintf(": did you mean %q?", best)
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

// orList writes names as "a, b or c".
func orList(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
