package leases

import "encoding/binary"

// texts keeps blobs: what a lease has of host name, client id and so on. They live in blocks of a few sizes, so that a
// freed one serves the next blob of about its length, and nothing ever needs to be moved. A reference is the size class
// in the upper bits and the number of the block in the lower; 0 is the blob of four empty texts.
type texts struct {
	classes [classCount]textClass
	empty   [textFields]byte // the blob of reference 0
}

const (
	textChunk  = 8 << 10
	classBits  = 6
	blockBits  = 32 - classBits
	fineStep   = 8
	fineClass  = 16 // blocks of 8 to 128 bytes
	coarseStep = 64
	classCount = fineClass + (maxBlob-fineStep*fineClass+coarseStep-1)/coarseStep
)

// A textClass is all blocks of one size. A free block holds the number of the next free one in its first bytes.
type textClass struct {
	chunks [][]byte
	last   uint32
	free   uint32
}

func classOfSize(n int) int {
	if n <= fineStep*fineClass {
		return (n - 1) / fineStep
	}
	return fineClass + (n-fineStep*fineClass-1)/coarseStep
}

func classSize(c int) int {
	if c < fineClass {
		return fineStep * (c + 1)
	}
	return fineStep*fineClass + coarseStep*(c-fineClass+1)
}

// block returns block i (from 1) of a class.
func (t *textClass) block(i uint32, size int) []byte {
	perChunk := textChunk / size
	at := int(i-1) % perChunk * size
	return t.chunks[int(i-1)/perChunk][at : at+size : at+size]
}

// put keeps a copy of a blob.
func (t *texts) put(blob []byte) uint32 {
	if len(blob) == textFields || len(blob) == 0 {
		return 0
	}
	c := classOfSize(len(blob))
	k, size := &t.classes[c], classSize(c)
	i := k.free
	if i != 0 {
		k.free = binary.LittleEndian.Uint32(k.block(i, size))
	} else {
		k.last++
		i = k.last
		if int(i-1)/(textChunk/size) == len(k.chunks) {
			k.chunks = append(k.chunks, make([]byte, textChunk))
		}
	}
	copy(k.block(i, size), blob)
	return uint32(c)<<blockBits | i
}

// get returns the blob of a reference. It is the arena's: valid until it is dropped, not to be changed.
func (t *texts) get(ref uint32) []byte {
	if ref == 0 {
		return t.empty[:]
	}
	c := int(ref >> blockBits)
	b := t.classes[c].block(ref&(1<<blockBits-1), classSize(c))
	return b[:blobSize(b)]
}

// drop frees the block of a reference.
func (t *texts) drop(ref uint32) {
	if ref == 0 {
		return
	}
	c := int(ref >> blockBits)
	k, i := &t.classes[c], ref&(1<<blockBits-1)
	binary.LittleEndian.PutUint32(k.block(i, classSize(c)), k.free)
	k.free = i
}
