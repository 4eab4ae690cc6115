package server

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/coreos/go-systemd/v22/activation"
)

// sockets are the listeners that systemd opened and passed to this process, by the
// FileDescriptorName of their socket units: api, registry. Connections wait in them while
// the server restarts.
type sockets map[string]net.Listener

// takeSockets takes the listeners from the environment of the process. Their addresses
// replace those of the configuration, because names of certificates, and the choice of
// plain HTTP on loopback, follow from them; so they are checked again.
func takeSockets(c Config) (Config, error) {
	var err error
	if c.sockets, err = openSockets(activation.Files(true)); err != nil {
		c.sockets.close()
		return c, err
	}
	for name, address := range map[string]*string{"api": &c.Listen, "registry": &c.RegistryListen} {
		if l := c.sockets[name]; l != nil {
			c.Logger.Info("systemd passed a socket, which replaces the configured address", "name", name, "socket", l.Addr().String(), "configured", *address)
			*address = l.Addr().String()
		}
	}
	if err := checkAddresses(c); err != nil {
		c.sockets.close()
		return c, err
	}
	return c, nil
}

// openSockets makes listeners of inherited files. A name that is unknown or occurs twice
// is an error: clients would wait on a socket that the server does not serve.
func openSockets(files []*os.File) (sockets, error) {
	taken := sockets{}
	var errs []error
	for _, file := range files {
		name := file.Name()
		l, err := net.FileListener(file)
		errs = append(errs, file.Close()) // the listener has a copy
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("the socket %q of systemd: %w", name, err))
			continue
		case name != "api" && name != "registry":
			err = fmt.Errorf("systemd passed a socket named %q: FileDescriptorName= must be api or registry", name)
		case taken[name] != nil:
			err = fmt.Errorf("systemd passed two sockets named %q: want one ListenStream=", name)
		case l.Addr().Network() != "tcp":
			err = fmt.Errorf("systemd passed the socket %q at %s: want a TCP address", name, l.Addr())
		default:
			taken[name] = l
			continue
		}
		errs = append(errs, err, l.Close())
	}
	return taken, errors.Join(errs...)
}

// listen returns the socket of a name, or opens the address.
func (s sockets) listen(name, address string) (net.Listener, error) {
	if l := s[name]; l != nil {
		return l, nil
	}
	return net.Listen("tcp", address)
}

// close closes the listeners that never served.
func (s sockets) close() {
	for _, l := range s {
		_ = l.Close() // most have been closed
	}
}
