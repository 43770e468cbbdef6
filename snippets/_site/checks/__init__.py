"""What is asked of the built site: valid HTML, live links, spelling, speed."""
