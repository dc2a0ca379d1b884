//go:build !teeth

package sim

const tagFlag = ""
