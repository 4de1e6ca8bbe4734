// Package consolelog keeps what virtual machines write to their serial consoles, for each boot.
//
// It owns a folder with one folder for each host. A boot is a file that begins with the machine's start or reset. Each boot is
// bounded, as is the number of boots and the size of the whole folder: the beginning and the end of a boot are kept. A Log also
// looks for lines that matter, such as a kernel panic. It connects to nothing: the caller hands in the output.
//
//	l, err := consolelog.Open(consolelog.Config{Dir: "/var/lib/bootlab/consoles"}, consolelog.Deps{Log: log, Now: time.Now, Found: record})
//	go l.Run(ctx)
//	l.Begin("master-0", "domain 7")
//	l.Write("master-0", output) // never blocks
//	boots, err := l.Boots("master-0")
//	text, err := l.Read("master-0", boots[0].Started)
package consolelog
