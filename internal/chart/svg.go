package chart

import (
	"bytes"
	"fmt"
	"html"
	"strconv"
	"strings"
	"unicode"
)

// An svg is a canvas that writes SVG.
type svg struct{ b bytes.Buffer }

// svgStyle has the colours of everything but the series. The file stands alone:
// nothing in it refers to another file.
const svgStyle = `<style>
.rc{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
.rc .bg{fill:#fff}.rc text{fill:#1b1f24}.rc .f{fill:#57606a}
.rc .g{stroke:#e3e6ea;stroke-width:1}.rc .a{stroke:#8c959f;stroke-width:1}
@media (prefers-color-scheme:dark){.rc .bg{fill:#161b22}.rc text{fill:#e6edf3}.rc .f{fill:#9da7b1}
.rc .g{stroke:#2b323b}.rc .a{stroke:#768390}}
</style>
`

func newSVG(width, height float64) *svg {
	s := new(svg)
	fmt.Fprintf(&s.b, `<svg xmlns="http://www.w3.org/2000/svg" class="rc" width="%s" height="%s" viewBox="0 0 %s %s" role="img">`+"\n",
		num(width), num(height), num(width), num(height))
	s.b.WriteString(svgStyle)
	fmt.Fprintf(&s.b, `<rect class="bg" width="%s" height="%s" rx="6"/>`+"\n", num(width), num(height))
	return s
}

// num writes a coordinate.
func num(v float64) string {
	text := strconv.FormatFloat(v, 'f', 1, 64)
	return strings.TrimSuffix(text, ".0")
}

func hexColor(color int) string { return fmt.Sprintf("#%06x", palette[color%MaxSeries]) }

func (s *svg) line(points []xy, width float64, color int) {
	s.b.WriteString(`<polyline fill="none" stroke-linejoin="round" stroke-linecap="round" stroke-width="` + num(width) + `" stroke="` + hexColor(color) + `" points="`)
	for i, p := range points {
		if i > 0 {
			s.b.WriteByte(' ')
		}
		s.b.WriteString(num(p.x) + "," + num(p.y))
	}
	s.b.WriteString("\"/>\n")
}

func (s *svg) rule(a, b xy, strong bool) {
	class := "g"
	if strong {
		class = "a"
	}
	fmt.Fprintf(&s.b, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n", class, num(a.x), num(a.y), num(b.x), num(b.y))
}

func (s *svg) rect(a, b xy, color int) {
	fmt.Fprintf(&s.b, `<rect x="%s" y="%s" width="%s" height="%s" fill="%s"/>`+"\n", num(a.x), num(a.y), num(b.x-a.x), num(b.y-a.y), hexColor(color))
}

func (s *svg) text(at xy, text string, style textStyle) {
	if text == "" {
		return
	}
	attr := fmt.Sprintf(`x="%s" y="%s" font-size="%s"`, num(at.x), num(at.y), num(style.size))
	switch style.align {
	case middle:
		attr += ` text-anchor="middle"`
	case right:
		attr += ` text-anchor="end"`
	}
	if style.bold {
		attr += ` font-weight="bold"`
	}
	if style.faint {
		attr += ` class="f"`
	}
	if style.up {
		attr += fmt.Sprintf(` transform="rotate(-90 %s %s)"`, num(at.x), num(at.y))
	}
	fmt.Fprintf(&s.b, "<text %s>%s</text>\n", attr, html.EscapeString(clean(text)))
}

// clean takes out what XML cannot hold.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == 0xfffe || r == 0xffff {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

func (s *svg) bytes() []byte {
	s.b.WriteString("</svg>\n")
	return s.b.Bytes()
}
