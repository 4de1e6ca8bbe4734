package api

import "time"

// SetAnswerTimeout replaces answerTimeout.
func (c *Client) SetAnswerTimeout(d time.Duration) { c.setAnswerTimeout(d) }
