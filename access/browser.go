package access

import (
	"net"
	"net/http"
	"net/url"
	"strings"
)

// FromPage returns why a request is refused that a web page of another origin made
// a browser send, or "" for any other request. This server has nothing for such
// pages, but the browser has what the page lacks: access to this machine's
// loopback, and client certificates.
//
// Browsers set Sec-Fetch-Site, and pages cannot change it: if present, it decides.
// Older browsers send Origin with every request that is not a plain read. Other
// programs send neither.
func FromPage(req *http.Request) string {
	switch site := req.Header.Get("Sec-Fetch-Site"); site {
	case "same-origin", "none": // a page of ours, or the address bar
		return ""
	case "":
	default:
		return "requests from web pages of other origins are refused (Sec-Fetch-Site: " + printable(site) + ")"
	}
	origin := req.Header.Get("Origin")
	if origin == "" {
		return ""
	}
	if u, err := url.Parse(origin); err == nil && u.Host != "" && strings.EqualFold(u.Host, req.Host) {
		return ""
	}
	return "requests from web pages of other origins are refused (Origin: " + printable(origin) + ")"
}

// Hosts are the host names of a listener on loopback.
type Hosts []string

// Foreign returns "" if the Host header of a request is one of the names, else the
// reason to refuse it. A listener that trusts all clients on loopback needs this check: a web
// page can make its own name resolve to 127.0.0.1 (DNS rebinding), and the browser
// then treats page and listener as one origin. Only the Host header shows it. The
// loopback addresses are always allowed: a page is never loaded from them.
func (names Hosts) Foreign(req *http.Request) string {
	host := req.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsLoopback() || strings.EqualFold(host, "localhost") {
		return ""
	}
	for _, name := range names {
		if strings.EqualFold(host, name) {
			return ""
		}
	}
	return "this listener is not called " + printable(host)
}

// printable replaces characters that are not printable ASCII and cuts the text to
// 100 bytes.
func printable(text string) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, text)
	return text[:min(len(text), 100)]
}
