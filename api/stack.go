package api

import "net/http"

// growStack makes the stack of a request's goroutine as large as the request needs. It
// would grow two or three times anyway, in the middle of the authorizer, of the decoder
// or of the comparison of fields, and a deep stack is slow to copy: a tenth of the CPU
// time of a GET and of an update.
func growStack(req *http.Request) {
	switch req.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		growTo32(len(req.Method))
	default:
		growTo16(len(req.Method))
	}
}

// growTo32 has a frame that only a stack of 32 KiB has room for.
//
//go:noinline
func growTo32(n int) byte {
	var frame [18 << 10]byte
	frame[n] = 1
	return frame[n+1]
}

// growTo16 has a frame that only a stack of 16 KiB has room for.
//
//go:noinline
func growTo16(n int) byte {
	var frame [9 << 10]byte
	frame[n] = 1
	return frame[n+1]
}
