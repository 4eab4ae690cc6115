package server

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestOpenSockets: sockets of systemd are served by their names; a socket that the server
// would not serve is refused.
func TestOpenSockets(t *testing.T) {
	tcp := func(name string) *os.File {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return copyOf(t, l.(*net.TCPListener), name)
	}
	local, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	text, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		files []*os.File
		want  string // of the error
	}{
		{nil, ""},
		{[]*os.File{tcp("api"), tcp("registry")}, ""},
		{[]*os.File{tcp("registry")}, ""},
		{[]*os.File{tcp("api"), tcp("exeunt.socket")}, `named "exeunt.socket": FileDescriptorName= must be api or registry`},
		{[]*os.File{tcp("api"), tcp("api")}, `two sockets named "api"`},
		{[]*os.File{copyOf(t, local.(*net.UnixListener), "api")}, "want a TCP address"},
		{[]*os.File{text}, `the socket "/dev/null" of systemd`},
	} {
		taken, err := openSockets(test.files)
		taken.close()
		if test.want == "" && (err != nil || len(taken) != len(test.files)) {
			t.Errorf("%d sockets become %v, %v", len(test.files), taken, err)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
}

// copyOf returns the descriptor of a listener under a name.
func copyOf(t *testing.T, l interface{ File() (*os.File, error) }, name string) *os.File {
	t.Helper()
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := syscall.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), name)
}
