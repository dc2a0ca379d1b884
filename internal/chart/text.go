package chart

import "strings"

// An SVG is shown in the reader's own font; room is left for the widest of those that
// are common, DejaVu Sans, which is Debian's. Widths are those of the Go fonts,
// which are close to the others, times widest.

// em is the unit of advances: so many make the size of a font.
const em = 2048

// advances are how wide the characters ' ' to '~' are, in the regular and in the bold
// Go font (golang.org/x/image/font/gofont, table hmtx), and how wide a letter of
// another Latin script is at most.
var advances = [2]struct {
	ascii [95]uint16
	latin uint16
}{
	{[95]uint16{
		569, 569, 727, 1139, 1139, 1821, 1366, 391, 682, 682, 1196, 1196, 648, 1196, 648, 569, 1139, 1139,
		1139, 1139, 1139, 1139, 1139, 1139, 1139, 1139, 627, 627, 1196, 1196, 1196, 1139, 2079, 1366, 1366,
		1479, 1479, 1366, 1251, 1593, 1479, 817, 1015, 1366, 1139, 1706, 1479, 1593, 1366, 1593, 1479, 1366,
		1251, 1479, 1366, 1933, 1366, 1366, 1251, 569, 569, 569, 960, 1139, 682, 1139, 1139, 1024, 1139,
		1139, 569, 1139, 1139, 505, 519, 1024, 548, 1706, 1139, 1139, 1139, 1139, 682, 1024, 579, 1139,
		1024, 1479, 1024, 1024, 1024, 684, 532, 684, 1196,
	}, 1139},
	{[95]uint16{
		569, 682, 971, 1139, 1139, 1821, 1479, 487, 682, 682, 1143, 1196, 569, 1196, 569, 569, 1139, 1139,
		1139, 1139, 1139, 1139, 1139, 1139, 1139, 1139, 682, 682, 1196, 1196, 1196, 1251, 1997, 1479, 1479,
		1479, 1479, 1366, 1251, 1593, 1479, 928, 1139, 1479, 1251, 1706, 1479, 1593, 1366, 1593, 1479, 1366,
		1251, 1479, 1366, 1933, 1366, 1366, 1251, 682, 569, 682, 1196, 1139, 682, 1139, 1251, 1139, 1251,
		1139, 682, 1251, 1251, 592, 589, 1139, 611, 1821, 1251, 1251, 1251, 1251, 797, 1139, 682, 1251,
		1139, 1593, 1139, 1139, 1024, 797, 573, 797, 1196,
	}, 1251},
}

// widest is how much wider DejaVu Sans is than the Go font, at most: its letters
// are 14 % wider, its bold ones 17 %.
const widest = 1.17

// textWidth is how wide a text is at most, in pixels. A character of no Latin script
// counts as a square.
func textWidth(s string, size float64, bold bool) float64 {
	font := &advances[0]
	if bold {
		font = &advances[1]
	}
	sum := 0
	for _, r := range s {
		switch {
		case r >= ' ' && r <= '~':
			sum += int(font.ascii[r-' '])
		case r < 0x250:
			sum += int(font.latin)
		default:
			sum += em
		}
	}
	return widest * size * float64(sum) / em
}

// wrap breaks a text between words into lines that are at most width wide; one word
// that is wider has a line of its own.
func wrap(s string, width, size float64, bold bool) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		longer := strings.TrimSpace(line + " " + word)
		if line != "" && textWidth(longer, size, bold) > width {
			lines, longer = append(lines, line), word
		}
		line = longer
	}
	return append(lines, line)
}
