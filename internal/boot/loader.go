package boot

import (
	"github.com/bootlab/bootlab/internal/boot/recipe"
	"github.com/bootlab/bootlab/internal/lab"
)

// A loader is what a boot loader has to be told, in its language.
type loader struct {
	grub      bool // it is GRUB
	script    func(*recipe.Recipe, recipe.Data) ([]byte, error)
	localBoot func(host, why string, how lab.LocalBoot) []byte
	held      func(host, why string) []byte
	nothing   func(lab.MAC) []byte
	discover  func(mac lab.MAC, base string) []byte
}

// loaderOf returns the loader that asks for a script of that name.
func loaderOf(name string) loader {
	if name == lab.GRUBName {
		return loader{
			grub: true, script: (*recipe.Recipe).GRUB, localBoot: recipe.GRUBLocalBoot, held: recipe.GRUBHeld, nothing: recipe.GRUBNothing,
			discover: func(mac lab.MAC, _ string) []byte { return recipe.GRUBNothing(mac) },
		}
	}
	return loader{script: (*recipe.Recipe).Script, localBoot: recipe.LocalBoot, held: recipe.Held, nothing: recipe.Nothing, discover: recipe.Discover}
}

// loaderFor returns the loader that a host's chain ends in.
func loaderFor(c lab.Chain) loader {
	if c == lab.ChainGRUB {
		return loaderOf(lab.GRUBName)
	}
	return loaderOf(lab.ScriptName)
}
