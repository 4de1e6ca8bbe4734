package guest

// talkerCode is a boot sector for BIOS. It writes the text behind it to the first serial port, and then each byte that it
// receives there; an "R" resets the machine. Without interrupts: SeaBIOS reads the serial port in one.
//
//	cli; xor ax,ax; mov ds,ax; cld; mov si,text
//	write: lodsb; test al,al; jz echo; call put; jmp write
//	echo: mov dx,3fdh; in al,dx; test al,1; jz echo; mov dx,3f8h; in al,dx; cmp al,'R'; je reset; call put; jmp echo
//	put: push ax; full: mov dx,3fdh; in al,dx; test al,20h; jz full; pop ax; mov dx,3f8h; out dx,al; ret
//	reset: mov al,0feh; out 64h,al; jmp $
//	text:
const talkerCode = "\xfa\x31\xc0\x8e\xd8\xfc\xbe\x3d\x7c\xac\x84\xc0\x74\x05\xe8\x17\x00\xeb\xf6\xba\xfd\x03\xec\xa8\x01\x74\xf8\xba\xf8\x03\xec" +
	"\x3c\x52\x74\x14\xe8\x02\x00\xeb\xeb\x50\xba\xfd\x03\xec\xa8\x20\x74\xf8\x58\xba\xf8\x03\xee\xc3\xb0\xfe\xe6\x64\xeb\xfe"

// Talker returns a raw disk image of 1 MiB. A machine with BIOS that boots from it writes text, of at most 400 bytes, to its first
// serial port, and then each byte that it receives there; an "R" resets it. It needs no kernel and boots within a second.
func Talker(text string) []byte {
	disk := make([]byte, 1<<20)
	if n := copy(disk[copy(disk, talkerCode):446], text+"\x00"); n < len(text)+1 {
		panic("guest: the text of a talker is too long")
	}
	disk[510], disk[511] = 0x55, 0xaa
	return disk
}
