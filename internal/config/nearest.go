package config

import (
	"strconv"
	"strings"
)

// Nearest returns the candidate that a misspelt name most likely meant, or ""
// when nothing is close: a wild guess helps nobody. Case, and whether words are
// joined by "-" or "_", make no difference.
func Nearest(name string, candidates []string) string {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "_")) }
	name = plain(name)
	if len(name) > 64 {
		return ""
	}
	best, bestDist := "", len(name)/3+2
	for _, c := range candidates {
		if d := distance(name, plain(c)); d < bestDist {
			best, bestDist = c, d
		}
	}
	return best
}

// distance counts the single edits (insert, delete, replace, swap of two
// neighbours) that turn a into b: optimal string alignment, because swapped
// letters are what fingers do.
func distance(a, b string) int {
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}

// quote shows foreign text in a message: quoted, so that control characters
// cannot reach a terminal, and cut, so that the line stays a line.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}
