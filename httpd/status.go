package httpd

import (
	"errors"
	"net/http"
)

// statusOf returns the status that an error brings along in a method HTTPStatus() int, 500 without one.
func statusOf(err error) int {
	var s interface{ HTTPStatus() int }
	if errors.As(err, &s) {
		if code := s.HTTPStatus(); code >= 400 && code <= 599 {
			return code
		}
	}
	return http.StatusInternalServerError
}
