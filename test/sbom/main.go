// Sbom prints the bill of materials of a bootlab binary as SPDX 2.3 (JSON): its Go modules, as the binary itself lists them, and the
// boot programs that are embedded. "make sbom" runs it. The same binary gives the same text.
//
//	go run ./test/sbom -version v0.1.0 -date 2026-11-22T10:00:00Z bin/bootlab > bin/bootlab.spdx.json
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("sbom: ")
	version := flag.String("version", "unknown", "`version` of the binary, which it does not list itself")
	date := flag.String("date", "1970-01-01T00:00:00Z", "`time` of the document: that of the commit, so that a commit always gives the same text")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: sbom [flags] BINARY, in the folder of the source that it was built from")
	}
	if err := write(os.Stdout, source{binary: flag.Arg(0), folder: ".", version: *version, date: *date}); err != nil {
		log.Fatal(err)
	}
}

// A document is an SPDX document; https://spdx.github.io/spdx-spec/v2.3 explains the fields.
type document struct {
	Version       string         `json:"spdxVersion"`
	ID            string         `json:"SPDXID"`
	DataLicense   string         `json:"dataLicense"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []pkg          `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type pkg struct {
	ID         string      `json:"SPDXID"`
	Name       string      `json:"name"`
	Version    string      `json:"versionInfo,omitempty"`
	Download   string      `json:"downloadLocation"`
	Analyzed   bool        `json:"filesAnalyzed"`
	Declared   string      `json:"licenseDeclared"`
	Concluded  string      `json:"licenseConcluded"`
	Copyright  string      `json:"copyrightText"`
	Purpose    string      `json:"primaryPackagePurpose,omitempty"`
	Checksums  []checksum  `json:"checksums,omitempty"`
	References []reference `json:"externalRefs,omitempty"`
	Comment    string      `json:"comment,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const noAssertion = "NOASSERTION"

// A source is a binary, the folder that it was built from, and when.
type source struct{ binary, folder, version, date string }

// write writes the bill of materials.
func write(w io.Writer, s source) error {
	body, err := os.ReadFile(s.binary)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(s.binary)
	if err != nil {
		return fmt.Errorf("read what %s was built from: %w", s.binary, err)
	}
	licences, err := readLicences(s.folder + "/NOTICE")
	if err != nil {
		return err
	}
	programs, err := bootPrograms(s.folder + "/internal/firmware")
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	d := document{
		Version: "SPDX-2.3", ID: "SPDXRef-DOCUMENT", DataLicense: "CC0-1.0", Name: "bootlab " + s.version,
		Namespace: "https://" + info.Main.Path + "/spdx/" + hash,
		Creation:  creation{Created: s.date, Creators: []string{"Tool: bootlab-sbom"}},
	}
	d.add("", "DESCRIBES", pkg{
		ID: "SPDXRef-bootlab", Name: "bootlab", Version: s.version, Declared: "Apache-2.0", Purpose: "APPLICATION",
		Checksums: []checksum{{"SHA256", hash}}, References: purl("golang", info.Main.Path, s.version),
	})
	d.add("SPDXRef-bootlab", "CONTAINS", pkg{
		ID: "SPDXRef-go", Name: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go"), Declared: "BSD-3-Clause", Purpose: "LIBRARY",
		References: purl("golang", "stdlib", strings.TrimPrefix(info.GoVersion, "go")),
	})
	for _, m := range info.Deps {
		licence, ok := licences[m.Path]
		if !ok {
			return fmt.Errorf("%s is in the binary, but not in NOTICE: add it with its licence", m.Path)
		}
		d.add("SPDXRef-bootlab", "CONTAINS", module(m, licence))
	}
	for _, p := range programs {
		d.add("SPDXRef-bootlab", "CONTAINS", p)
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(d)
}

// add adds a package, and how it belongs to another: "" is the document.
func (d *document) add(to, how string, p pkg) {
	if to == "" {
		to = d.ID
	}
	if p.Download == "" {
		p.Download = noAssertion
	}
	p.Concluded, p.Copyright = p.Declared, noAssertion
	d.Packages = append(d.Packages, p)
	d.Relationships = append(d.Relationships, relationship{to, how, p.ID})
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func module(m *debug.Module, licence string) pkg {
	if m.Replace != nil {
		m = m.Replace
	}
	return pkg{
		ID: "SPDXRef-" + notInID.ReplaceAllString(m.Path+"-"+m.Version, "-"), Name: m.Path, Version: m.Version, Declared: licence, Purpose: "LIBRARY",
		References: purl("golang", m.Path, m.Version),
		Comment:    "go.sum: " + m.Sum,
	}
}

func purl(kind, name, version string) []reference {
	return []reference{{"PACKAGE-MANAGER", "purl", "pkg:" + kind + "/" + name + "@" + version}}
}

// readLicences reads the table of modules in NOTICE, as SPDX expressions.
func readLicences(path string) (map[string]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	licences := map[string]string{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 || !strings.HasPrefix(line, "  ") || !strings.Contains(f[0], ".") || !strings.Contains(f[0], "/") {
			continue
		}
		expression := strings.NewReplacer(" or ", " OR ", " and ", " AND ", "GPL-2.0", "GPL-2.0-only").Replace(strings.Join(f[1:], " "))
		licences[f[0]] = expression
	}
	if len(licences) == 0 {
		return nil, errors.New(path + " has no table of modules")
	}
	return licences, nil
}

// bootPrograms returns the embedded programs with the checksums that the build verified.
func bootPrograms(folder string) (all []pkg, err error) {
	sums, err := os.ReadFile(folder + "/SHA256SUMS")
	if err != nil {
		return nil, err
	}
	commit, err := os.ReadFile(folder + "/assets/ipxe.commit")
	if err != nil {
		return nil, err
	}
	version := strings.TrimSpace(string(commit))
	for line := range strings.Lines(string(sums)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if name = strings.TrimPrefix(name, "assets/"); !ok || !strings.Contains(name, ".") || name == "ipxe.commit" {
			continue
		}
		all = append(all, pkg{
			ID: "SPDXRef-ipxe-" + notInID.ReplaceAllString(name, "-"), Name: "ipxe/" + name, Version: version, Declared: "GPL-2.0-only", Purpose: "FIRMWARE",
			Download: "git+https://github.com/ipxe/ipxe@" + version, Checksums: []checksum{{"SHA256", sum}},
			References: purl("github", "ipxe/ipxe", version), Comment: "served to machines, never run; the embedded script is internal/firmware/embed.ipxe",
		})
	}
	return all, nil
}
