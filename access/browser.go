package access

import (
	"net"
	"net/http"
	"net/url"
	"strings"
)

// FromPage says why a request is refused that a web page made a browser send to
// this server; empty: it is not such a request. Nothing here is for pages of
// other origins, but a browser carries what a page does not have: a place on
// this machine's loopback, and client certificates.
//
// Browsers set Sec-Fetch-Site, and pages cannot: it decides where it is sent.
// Browsers that do not know it send Origin with all but plain reads. Programs
// send neither.
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

// Hosts are the names that a listener on loopback is called by.
type Hosts []string

// Foreign says why a request is refused whose Host is none of the names;
// empty: it is one of them. A listener that does not authenticate and trusts
// all of loopback needs this: a web page can have its own name point at
// 127.0.0.1 (DNS rebinding), and the browser then takes both for one origin.
// Only the Host header tells. The addresses of loopback need no entry: a page
// is never loaded from them.
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

// printable is a text from outside, cut to what fits into an answer.
func printable(text string) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, text)
	return text[:min(len(text), 100)]
}
