// Package kpxe changes text inside iPXE's programs for BIOS, which are compressed.
//
// Such a program is a loader and a few packed blocks; the last one is most of iPXE, and holds the script that was built in.
// Only "make assets" needs this (see ../fetch.go); the daemon does not link it.
//
//	program, err := kpxe.Replace(program, theirs, ours) // of the same length; the program keeps its length too
//
// How a block is packed stands in iPXE's src/util/zbin.c, and how it is unpacked in src/arch/x86/prefix/unlzma.S: its length
// in four bytes, LZMA without any header, and a CRC. The change keeps the packer's work: the stream is taken apart into
// its literals and copies, those that make the text are made anew, and all are coded again. So the result is as
// short as a good packer's, without one here, and the same on every machine. What is not changed comes out bit by bit as it was.
package kpxe
