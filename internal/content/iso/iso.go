// Package iso writes ISO 9660 images of a few small files, such as a seed of cloud-init.
//
// An image is made in memory, because its files may hold secrets. It has no times, so equal files are an equal image. The package
// reads no images, and writes no folders and nothing to boot from.
//
//	image, err := iso.Image("cidata", []iso.File{{Name: "user-data", Body: body}, {Name: "meta-data", Body: meta}})
package iso

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
)

// A File is one file of an image. Its name has up to 64 letters of the Basic Multilingual Plane.
type File struct {
	Name string
	Body []byte
}

const sector = 2048

// Sectors of an image. The Joliet tree has the names as they are, the other one a subset of ASCII.
const (
	descriptor = 16 + iota
	jolietDescriptor
	terminator
	pathTable // of Intel's byte order, then of the other
	_
	jolietPathTable
	_
	root
	jolietRoot
	firstFile
)

// Image returns an image with these files in its root folder, under their names (Joliet Specification, 1995) and in the few letters that
// ECMA-119 has. The label has up to 16 ASCII letters. It is an error if the names do not fit into one sector, as some 25 do.
func Image(label string, files []File) ([]byte, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	image := make([]byte, firstFile*sector)
	names, jolietNames := folder(root), folder(jolietRoot)
	for _, f := range files {
		at := uint32(len(image) / sector)
		names = append(names, record(plainName(f.Name), at, uint32(len(f.Body)), 0)...)
		jolietNames = append(jolietNames, record(ucs2(f.Name+";1"), at, uint32(len(f.Body)), 0)...)
		image = append(image, f.Body...)
		image = append(image, make([]byte, -len(image)&(sector-1))...)
	}
	if len(label) > 16 || max(len(names), len(jolietNames)) > sector {
		return nil, fmt.Errorf("%d files and the label %q do not fit into an ISO image of one folder", len(files), label)
	}
	sectors := uint32(len(image) / sector)
	put := func(at int, b []byte) { copy(image[at*sector:(at+1)*sector], b) }
	ascii := func(s string, n int) []byte { return []byte(s + strings.Repeat(" ", n-len(s))) }
	joliet := func(s string, n int) []byte {
		return append(ucs2(s+strings.Repeat(" ", n/2-len(s))), make([]byte, n%2)...)
	}
	put(descriptor, volume(1, label, sectors, pathTable, root, ascii))
	put(jolietDescriptor, volume(2, label, sectors, jolietPathTable, jolietRoot, joliet))
	put(terminator, []byte("\xffCD001\x01"))
	for table, at := range map[int]uint32{pathTable: root, jolietPathTable: jolietRoot} {
		put(table, slices.Concat([]byte{1, 0}, binary.LittleEndian.AppendUint32(nil, at), []byte{1, 0, 0, 0}))
		put(table+1, slices.Concat([]byte{1, 0}, binary.BigEndian.AppendUint32(nil, at), []byte{0, 1, 0, 0}))
	}
	put(root, names)
	put(jolietRoot, jolietNames)
	return image, nil
}

// volume returns a volume descriptor: kind 1 is the primary one, 2 that of Joliet. pad encodes a text with spaces up to a length.
func volume(kind byte, label string, sectors, table, folder uint32, pad func(string, int) []byte) []byte {
	const pathTableBytes = 10
	var b bytes.Buffer
	b.Write([]byte{kind})
	b.WriteString("CD001\x01\x00")
	b.Write(pad("", 32)) // system
	b.Write(pad(label, 32))
	b.Write(make([]byte, 8))
	b.Write(both32(sectors))
	escape := make([]byte, 32)
	if kind == 2 {
		copy(escape, "%/E") // UCS-2 level 3
	}
	b.Write(escape)
	b.Write(slices.Concat(both16(1), both16(1), both16(sector), both32(pathTableBytes)))
	b.Write(slices.Concat(binary.LittleEndian.AppendUint32(nil, table), make([]byte, 4)))
	b.Write(slices.Concat(binary.BigEndian.AppendUint32(nil, table+1), make([]byte, 4)))
	b.Write(record([]byte{0}, folder, sector, isFolder))
	for _, n := range []int{128, 128, 128, 128, 37, 37, 37} { // set, publisher, preparer, application, copyright, abstract, bibliography
		b.Write(pad("", n))
	}
	for range 4 {
		b.WriteString("0000000000000000\x00") // no time
	}
	b.WriteByte(1)
	return b.Bytes()
}

const isFolder = 2

// folder returns the first records of the root folder: itself and its parent.
func folder(at uint32) []byte {
	return slices.Concat(record([]byte{0}, at, sector, isFolder), record([]byte{1}, at, sector, isFolder))
}

// record returns a directory record (ECMA-119 section 9.1).
func record(name []byte, at, size uint32, flags byte) []byte {
	r := slices.Concat([]byte{0, 0}, both32(at), both32(size), make([]byte, 7), []byte{flags, 0, 0}, both16(1), []byte{byte(len(name))}, name)
	r = append(r, make([]byte, len(r)&1)...)
	r[0] = byte(len(r))
	return r
}

// plainName returns a name in the letters that ISO 9660 has.
func plainName(name string) []byte {
	return []byte(strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, name) + ".;1")
}

func ucs2(s string) (b []byte) {
	for _, u := range utf16.Encode([]rune(s)) {
		b = binary.BigEndian.AppendUint16(b, u)
	}
	return b
}

func both16(n uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, n), n)
}

func both32(n uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, n), n)
}
