// Package siw stub comment; replaced below.
package siw
